/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_print.c: a report as text and as JSON. See profiler_report.h.
 */
#include <inttypes.h>

#include "plugin/core/names.h"
#include "plugin/nccl/profiler_report.h"

enum { ROWS = 12 /* sizes in the text; JSON has them all */ };

/* ---------------------------------------------------------------- text */

static void print_us(FILE* out, double us) {
  if (us < 1e3) {
    fprintf(out, "%.1f us", us);
  } else if (us < 1e6) {
    fprintf(out, "%.1f ms", us / 1e3);
  } else {
    fprintf(out, "%.1f s", us / 1e6);
  }
}

static void text_head(const struct report* report, FILE* out) {
  const struct profiler_facts* facts = report->facts;
  fprintf(out, "arfusion: communicator 0x%" PRIx64 "%s%s%s, rank %d of %d on %d node%s, %s:%d, %s (%s), %.1f s%s\n",
          facts->id, facts->name[0] ? " \"" : "", facts->name, facts->name[0] ? "\"" : "", facts->rank, facts->nranks,
          facts->nnodes, facts->nnodes == 1 ? "" : "s", facts->host, (int)facts->pid, facts->device, facts->arch,
          report->seconds, report->ended ? "" : ", never destroyed");
  fprintf(out,
          "  allreduces:  %" PRIu64 " calls, and %" PRIu64
          " captured into graphs (their replays are not seen); other "
          "collectives: %" PRIu64 "\n",
          report->eager, report->captured, report->others);
  if (report->overflow) {
    fprintf(out, "               %" PRIu64 " more, of sizes beyond the %d that are counted, are in nothing below\n",
            report->overflow, PROFILER_SIZES);
  }
}

static void text_fusible(const struct report* report, FILE* out) {
  fprintf(
      out,
      "  fusible:     %" PRIu64
      " by their shape: bf16, fp16 or fp32 in a multiple of 16 bytes. NCCL tells neither "
      "rows nor operation (taken\n               to be sums) nor what follows: whether a residual and a norm do, you "
      "know\n",
      report->fusible);
  for (int type = 0; type < (int)(sizeof report->divides / sizeof report->divides[0]); ++type) {
    if (!report->divides[type]) continue;
    fprintf(out, "               all fusible counts of %s are multiples of %" PRId64 " elements%s\n",
            report_type_name((arfusionDataType_t)type), report->divides[type],
            report->divides[type] < 512 ? ": hardly rows of one hidden" : "");
  }
}

static void text_form(const struct report* report, enum report_form form, FILE* out) {
  const char* separator = "";
  uint64_t taken = 0;
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) taken += report->form[form].taken[a];
  fprintf(out,
          form == REPORT_FUSED ? "  fused:       %" PRIu64 " would be taken with residual and norm"
                               : "  as they are: %" PRIu64 " would be taken",
          taken);
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    if (!report->form[form].taken[a]) continue;
    fprintf(out, "%s %s %" PRIu64, separator[0] ? separator : ":", name_of_algorithm((arfusionAlgorithm_t)a),
            report->form[form].taken[a]);
    separator = ",";
  }
  fprintf(out, "\n");
  for (int r = 0; r < ARFUSION_NUM_REASONS; ++r) {
    if (!report->form[form].reasons[r]) continue;
    fprintf(out, "               %" PRIu64 " not: %s\n", report->form[form].reasons[r],
            name_of_reason((arfusionReason_t)r));
  }
  if (!report->basis || !taken) return;
  fprintf(out, "               GPU time saved: about ");
  print_us(out, report->form[form].eager.saved_us);
  fprintf(out, " of ");
  print_us(out, report->form[form].eager.now_us);
  if (report->form[form].captured.calls) {
    fprintf(out, ", and with each replay of all graphs ");
    print_us(out, report->form[form].captured.saved_us);
    fprintf(out, " of ");
    print_us(out, report->form[form].captured.now_us);
  }
  fprintf(out, "\n");
}

static void text_sizes(const struct report* report, FILE* out) {
  if (!report->nsizes) return;
  fprintf(out, "  %-10s %12s %12s %10s %9s  %-7s %-16s %s\n", "type", "elements", "bytes", "calls", "captured",
          "fusible", "route", "saves a call, as it is / fused");
  for (int i = 0; i < report->nsizes && i < ROWS; ++i) {
    const struct report_size* size = &report->sizes[i];
    fprintf(out, "  %-10s %12" PRIu64 " %12" PRId64 " %10" PRIu64 " %9" PRIu64 "  %-7s %-16s",
            report_type_name(size->calls.type), size->calls.count, size->bytes, size->calls.eager, size->calls.captured,
            size->fusible ? "yes" : "no", name_of_algorithm(size->form[REPORT_ALLREDUCE].route.algorithm));
    if (size->form[REPORT_ALLREDUCE].now_us > 0) fprintf(out, " %.1f us", size->form[REPORT_ALLREDUCE].saved_us);
    if (size->form[REPORT_FUSED].now_us > 0) fprintf(out, " / %.1f us", size->form[REPORT_FUSED].saved_us);
    fprintf(out, "\n");
  }
  if (report->nsizes > ROWS) fprintf(out, "  and %d more sizes\n", report->nsizes - ROWS);
}

void report_print_text(const struct report* report, FILE* out) {
  text_head(report, out);
  if (report->nsizes) {
    text_fusible(report, out);
    text_form(report, REPORT_ALLREDUCE, out);
    text_form(report, REPORT_FUSED, out);
    fprintf(out,
            "  routes:      of a communicator of the default size on GPUs that reach each other (arfusion-topo "
            "checks), table "
            "%s\n",
            report->facts->table);
    fprintf(out, "  times:       %s\n", report->basis ? report->basis : "no estimate");
  }
  text_sizes(report, out);
}

/* ---------------------------------------------------------------- JSON */

static void json_string(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      fprintf(out, "\\%c", c);
    } else if (c < 0x20 || c >= 0x7f) {
      fprintf(out, "\\u%04x", c); /* bytes that may be no UTF-8 */
    } else {
      fputc(c, out);
    }
  }
  fputc('"', out);
}

static void json_head(const struct report* report, FILE* out) {
  const struct profiler_facts* facts = report->facts;
  fprintf(out, "{\"format\": \"arfusion-report\", \"version\": 1, \"host\": ");
  json_string(out, facts->host);
  fprintf(out, ", \"pid\": %d, \"communicator\": \"0x%" PRIx64 "\", \"name\": ", (int)facts->pid, facts->id);
  json_string(out, facts->name);
  fprintf(out, ", \"rank\": %d, \"ranks\": %d, \"nodes\": %d, \"device\": ", facts->rank, facts->nranks, facts->nnodes);
  json_string(out, facts->device);
  fprintf(out, ", \"arch\": \"%s\", \"table\": \"%s\", \"seconds\": %.6f, \"ended\": %s", facts->arch, facts->table,
          report->seconds, report->ended ? "true" : "false");
  fprintf(out,
          ", \"eager_calls\": %" PRIu64 ", \"captured_calls\": %" PRIu64 ", \"calls_not_counted_by_size\": %" PRIu64
          ", \"other_collectives\": %" PRIu64 ", \"fusible_calls\": %" PRIu64 ", \"fusible_divisor\": {",
          report->eager, report->captured, report->overflow, report->others, report->fusible);
  const char* separator = "";
  for (int type = 0; type < (int)(sizeof report->divides / sizeof report->divides[0]); ++type) {
    if (!report->divides[type]) continue;
    fprintf(out, "%s\"%s\": %" PRId64, separator, report_type_name((arfusionDataType_t)type), report->divides[type]);
    separator = ", ";
  }
  fprintf(out, "}, \"estimate_basis\": ");
  if (report->basis) {
    json_string(out, report->basis);
  } else {
    fprintf(out, "null");
  }
}

static void json_sum(FILE* out, const char* name, const struct report_sum* sum, int estimated) {
  fprintf(out, ", \"%s\": {\"calls\": %" PRIu64, name, sum->calls);
  if (estimated) fprintf(out, ", \"now_us\": %.3f, \"saved_us\": %.3f", sum->now_us, sum->saved_us);
  fprintf(out, "}");
}

static void json_form(const struct report* report, enum report_form form, FILE* out) {
  const char* separator = "";
  fprintf(out, ", \"%s\": {\"taken\": {", form == REPORT_FUSED ? "fused" : "allreduce");
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    if (!report->form[form].taken[a]) continue;
    fprintf(out, "%s\"%s\": %" PRIu64, separator, name_of_algorithm((arfusionAlgorithm_t)a),
            report->form[form].taken[a]);
    separator = ", ";
  }
  fprintf(out, "}, \"turned_down\": [");
  separator = "";
  for (int r = 0; r < ARFUSION_NUM_REASONS; ++r) {
    if (!report->form[form].reasons[r]) continue;
    fprintf(out, "%s{\"reason\": %d, \"text\": \"%s\", \"calls\": %" PRIu64 "}", separator, r,
            name_of_reason((arfusionReason_t)r), report->form[form].reasons[r]);
    separator = ", ";
  }
  fprintf(out, "]");
  json_sum(out, "eager", &report->form[form].eager, report->basis != NULL);
  json_sum(out, "captured_once", &report->form[form].captured, report->basis != NULL);
  fprintf(out, "}");
}

static void json_size(const struct report_size* size, FILE* out) {
  fprintf(out,
          "{\"type\": \"%s\", \"count\": %" PRIu64 ", \"bytes\": %" PRId64 ", \"eager_calls\": %" PRIu64
          ", \"captured_calls\": %" PRIu64 ", \"fusible\": %s",
          report_type_name(size->calls.type), size->calls.count, size->bytes, size->calls.eager, size->calls.captured,
          size->fusible ? "true" : "false");
  for (int form = 0; form < REPORT_FORMS; ++form) {
    const arfusionRoute_t* route = &size->form[form].route;
    fprintf(out, ", \"%s\": {\"algorithm\": \"%s\"", form == REPORT_FUSED ? "fused" : "allreduce",
            name_of_algorithm(route->algorithm));
    if (route->algorithm == arfusionAlgoNone) {
      fprintf(out, ", \"reason\": %d, \"value\": %" PRId64 ", \"limit\": %" PRId64, route->reason, route->value,
              route->limit);
    }
    if (size->form[form].now_us > 0) {
      fprintf(out, ", \"now_us\": %.3f, \"saved_us\": %.3f", size->form[form].now_us, size->form[form].saved_us);
    }
    fprintf(out, "}");
  }
  fprintf(out, "}");
}

void report_print_json(const struct report* report, FILE* out) {
  json_head(report, out);
  for (int form = 0; form < REPORT_FORMS; ++form) json_form(report, (enum report_form)form, out);
  fprintf(out, ", \"sizes\": [");
  for (int i = 0; i < report->nsizes; ++i) {
    if (i) fprintf(out, ", ");
    json_size(&report->sizes[i], out);
  }
  fprintf(out, "]}\n");
}
