# SPDX-License-Identifier: Apache-2.0
# The public headers compile alone, as C11 and as C++17, without a warning.
set -eu
warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"
for header in arfusion_plugin.h arfusion.h; do
  echo "#include <$header>" | ${CC:-gcc} -std=c11 $warnings -Iinclude -x c -fsyntax-only -
  echo "#include <$header>" | g++ -std=c++17 $warnings -Iinclude -x c++ -fsyntax-only -
done
