/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl why`: who waits for whom. Culprits first, then what leads to them. */
#include <inttypes.h>

#include "tools/occlctl/human.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

/* Style of a terminal; all empty elsewhere. */
struct style {
    const char *strong;
    const char *end;
};

static struct style style_of(const struct occl_ctl_options *options) {
    return options->color ? (struct style){"\033[1m", "\033[0m"} : (struct style){"", ""};
}

/* stdout is checked at exit, so no print below looks at its own result. */

static void print_age(FILE *out, const char *before, long long age_ns, const char *after) {
    char text[OCCL_HUMAN_BYTES];
    (void)fprintf(out, "%s%s%s", before,
                  occl_human_duration(age_ns > 0 ? (uint64_t)age_ns : 0, text, sizeof text), after);
}

/* "all_reduce tag 5 #3 on grads of job-7": how an op is called in every line. */
static void print_op_name(FILE *out, const json_t *op) {
    occl_table_safe_text(out, occl_table_string(op, "kind"));
    if (occl_table_integer(op, "tag") != 0)
        (void)fprintf(out, " tag %lld", occl_table_integer(op, "tag"));
    (void)fprintf(out, " #%lld", occl_table_integer(op, "instance"));
    if (occl_table_string(op, "comm")[0]) {
        (void)fputs(" on ", out);
        occl_table_safe_text(out, occl_table_string(op, "comm"));
    }
    if (occl_table_string(op, "job")[0]) {
        (void)fputs(" of ", out);
        occl_table_safe_text(out, occl_table_string(op, "job"));
    }
}

static void print_place(FILE *out, const json_t *rank) {
    (void)fprintf(out, "rank %lld", occl_table_integer(rank, "rank"));
    const json_t *pid = json_object_get(rank, "pid");
    if (occl_table_string(rank, "host")[0]) {
        (void)fputs(" on ", out);
        occl_table_safe_text(out, occl_table_string(rank, "host"));
    }
    if (json_is_integer(pid) && json_integer_value(pid) > 0)
        (void)fprintf(out, " pid %lld", (long long)json_integer_value(pid));
}

static void print_late(FILE *out, const json_t *late, struct style style) {
    (void)fputs("    ", out);
    (void)fputs(style.strong, out);
    print_place(out, late);
    (void)fputs(style.end, out);
    (void)fputs(": ", out);
    occl_table_safe_text(out, occl_table_string(late, "verdict"));
    if (occl_table_string(late, "process")[0]) {
        (void)fputs(", process ", out);
        occl_table_safe_text(out, occl_table_string(late, "process"));
    }
    const json_t *last = json_object_get(late, "last_op");
    if (json_is_object(last)) {
        (void)fputs(", last did ", out);
        print_op_name(out, last);
    } else {
        (void)fputs(", has done nothing here yet", out);
    }
    if (json_is_integer(json_object_get(late, "last_activity_age_ns")))
        print_age(out, ", active ", occl_table_integer(late, "last_activity_age_ns"), " ago");
    size_t index;
    json_t *in;
    json_array_foreach(json_object_get(late, "waits_in"), index, in) {
        (void)fputs(index ? ", and in " : ", waits in ", out);
        print_op_name(out, in);
    }
    (void)fputc('\n', out);
}

static void print_lates(FILE *out, const json_t *of, struct style style) {
    size_t index;
    json_t *late;
    json_array_foreach(json_object_get(of, "late"), index, late) print_late(out, late, style);
}

static void print_wait(FILE *out, const json_t *op, struct style style) {
    char size[OCCL_HUMAN_BYTES];
    print_op_name(out, op);
    (void)fprintf(out, " (");
    if (occl_table_string(op, "dtype")[0]) {
        occl_table_safe_text(out, occl_table_string(op, "dtype"));
        (void)fprintf(
            out, "%s%s, %" PRId64 " elements, %s", occl_table_string(op, "redop")[0] ? " " : "",
            occl_table_string(op, "redop"), (int64_t)occl_table_integer(op, "count"),
            occl_human_size((uint64_t)occl_table_integer(op, "bytes"), size, sizeof size));
    } else {
        (void)fputs("no data", out);
    }
    if (json_is_integer(json_object_get(op, "root")))
        (void)fprintf(out, ", root %lld", occl_table_integer(op, "root"));
    if (json_is_integer(json_object_get(op, "source")))
        (void)fprintf(out, ", from %lld to %lld", occl_table_integer(op, "source"),
                      occl_table_integer(op, "destination"));
    print_age(out, ") has waited ", occl_table_integer(op, "age_ns"), "\n");
    (void)fprintf(out, "  arrived: %s; missing: %s%s%s\n", occl_table_string(op, "arrived_text"),
                  style.strong, occl_table_string(op, "missing_text"), style.end);
    print_lates(out, op, style);
    size_t index;
    json_t *held;
    json_array_foreach(json_object_get(op, "held_back"), index, held) {
        (void)fprintf(out, "    rank %lld: ", occl_table_integer(held, "rank"));
        occl_table_safe_text(out, occl_table_string(held, "text"));
        (void)fputc('\n', out);
    }
}

static void print_forming(FILE *out, const json_t *comm, struct style style) {
    (void)fputs("communicator ", out);
    occl_table_safe_text(out, occl_table_string(comm, "comm"));
    (void)fputs(" of ", out);
    occl_table_safe_text(out, occl_table_string(comm, "job"));
    (void)fprintf(out, " (%lld ranks)", occl_table_integer(comm, "ranks"));
    print_age(out, " has been forming for ", occl_table_integer(comm, "age_ns"), "\n");
    (void)fprintf(out, "  arrived: %s; missing: %s%s%s\n", occl_table_string(comm, "arrived_text"),
                  style.strong, occl_table_string(comm, "missing_text"), style.end);
    print_lates(out, comm, style);
}

/* A cycle is printed as a ring: the last line leads back to the first. */
static void print_cycle(FILE *out, const json_t *cycle, struct style style) {
    (void)fprintf(out, "%s%s of application waits:%s\n", style.strong,
                  json_is_true(json_object_get(cycle, "definite")) ? "cycle" : "likely cycle",
                  style.end);
    size_t index;
    json_t *member;
    json_array_foreach(json_object_get(cycle, "members"), index, member) {
        (void)fputs(index ? "  -> " : "     ", out);
        print_place(out, member);
        const json_t *held = json_object_get(member, "held_back");
        if (json_is_object(held)) {
            (void)fputs(" has submitted ", out);
            print_op_name(out, held);
            (void)fputs(", which comes after ", out);
        } else {
            (void)fputs(" waits in ", out);
        }
        print_op_name(out, member);
        (void)fprintf(out, "%s for rank %lld", json_is_object(held) ? ", which waits" : "",
                      occl_table_integer(member, "waits_for_rank"));
        if (json_is_integer(json_object_get(member, "waits_for_pid")))
            (void)fprintf(out, " pid %lld", occl_table_integer(member, "waits_for_pid"));
        (void)fputc('\n', out);
    }
    (void)fputs("  -> and so on: no order of execution can end it\n", out);
    if (occl_table_string(cycle, "text")[0]) {
        (void)fputs("  ", out);
        occl_table_safe_text(out, occl_table_string(cycle, "text"));
        (void)fputc('\n', out);
    }
}

static void print_failure(FILE *out, const json_t *failure) {
    (void)fputs("communicator ", out);
    occl_table_safe_text(out, occl_table_string(failure, "comm"));
    (void)fputs(" of ", out);
    occl_table_safe_text(out, occl_table_string(failure, "job"));
    print_age(out, " ended ", occl_table_integer(failure, "age_ns"), " ago: ");
    print_place(out, failure);
    (void)fputs(": ", out);
    occl_table_safe_text(out, occl_table_string(failure, "cause"));
    (void)fputc('\n', out);
}

/* The daemon's sentence names the place itself. */
static void print_culprit(FILE *out, const json_t *culprit, struct style style) {
    (void)fprintf(out, "%sculprit: ", style.strong);
    if (occl_table_string(culprit, "text")[0])
        occl_table_safe_text(out, occl_table_string(culprit, "text"));
    else
        print_place(out, culprit);
    (void)fprintf(out, "%s (", style.end);
    occl_table_safe_text(out, occl_table_string(culprit, "verdict"));
    print_age(out, " since ", occl_table_integer(culprit, "age_ns"), ")\n");
}

static int show_why(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    bool problem = json_is_true(json_object_get(reply, "problem"));
    int code = problem ? OCCL_CTL_PROBLEM : OCCL_CTL_FINE;
    if (!out)
        return code;
    struct style style = style_of(options);
    size_t index;
    json_t *item;
    json_array_foreach(json_object_get(reply, "culprits"), index, item)
        print_culprit(out, item, style);
    json_array_foreach(json_object_get(reply, "cycles"), index, item) print_cycle(out, item, style);
    json_array_foreach(json_object_get(reply, "failures"), index, item) print_failure(out, item);
    json_array_foreach(json_object_get(reply, "waits"), index, item) print_wait(out, item, style);
    json_array_foreach(json_object_get(reply, "forming"), index, item)
        print_forming(out, item, style);
    /* A name that nobody has would read as good news. */
    bool filtered = options->job || options->comm || options->tenant || options->rank >= 0;
    if (!problem)
        (void)fprintf(out, "nothing is wrong%s: no op waits longer than is normal\n",
                      filtered ? " where the filters look" : "");
    return code;
}

int occl_ctl_why(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "why", show_why);
}
