/* `shardc verify`: a plan changes no number but rounding; shown by training a few steps under two
   plans from the same seed and data, as processes of this machine, whatever machine the plans are
   for. Losses, norms, parameters and states are compared (cmd_verify_compare.c). What one rank in
   f32 gives is what a plan is compared with, unless another one is named. */
#include "cmd_verify.h"
#include "ir/placement.h"
#include "runtime/base/file.h"
#include "ir/module_settings.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Verify {
  Cli *o;
  const char *folder, *steps;
  VerifySide a, b;
  Cli side[2]; /* with contexts of their own */
  Tolerance t;
} Verify;

static const char *name_of(const VerifySide *s) { return s->plan ? s->plan : "(none written)"; }

/* ---- one side ---- */

static const char *file_in(const Verify *x, const char *side, const char *end) {
  return arena_printf(x->o->c->arena, "%s/%s%s", x->folder, side, end);
}

static Exit environment(Cli *o, const char *what) {
  diag_at(o->c->diag, "E0002", (Span){0}, "cannot make `%s`: %s", what, strerror(errno));
  return EXIT_ENVIRONMENT;
}

/* The last words of a run that failed. */
static void show_log(const char *path) {
  char text[8192];
  FILE *f = fopen(path, "r");
  if (!f) return;
  size_t n = fread(text, 1, sizeof text, f);
  fwrite(text, 1, n, stderr);
  fclose(f);
}

static _Noreturn void become_ranks(char **command, int n, const char *log) {
  int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(EXIT_ENVIRONMENT);
  _exit(run_ranks(command, n));
}

/* What is said goes to a log, shown only when it fails. */
static Exit run_quietly(Verify *x, const VerifySide *s, char **command, const char *log) {
  int status, n = (int)mesh_ranks(s->m);
  fflush(stdout), fflush(stderr);
  pid_t pid = fork();
  if (pid == 0) become_ranks(command, n, log);
  if (pid < 0 || waitpid(pid, &status, 0) < 0) return environment(x->o, log);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BUG;
  if (!code) return EXIT_FINE;
  show_log(log);
  diag_at(x->o->c->diag, "E0803", (Span){0}, "the run under plan `%s` failed with exit status %d",
          name_of(s), code);
  return EXIT_ENVIRONMENT;
}

static Exit run_side(Verify *x, VerifySide *s, const char *side, const char *exe) {
  Strings words = {0};
  const char *const fixed[] = {exe,       "train",  "--out",        file_in(x, side, ".run"),
                               "--steps", x->steps, "--save-every", "0",
                               "--dump",  s->dump,  "--quiet"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    vec_push(x->o->c->arena, words, fixed[i]);
  for (uint32_t i = 1; i < x->o->operands.n; i++)
    vec_push(x->o->c->arena, words, x->o->operands.at[i]);
  vec_push(x->o->c->arena, words, NULL);
  return run_quietly(x, s, (char **)words.at, file_in(x, side, ".log"));
}

static Exit make_side(Verify *x, Cli *one, VerifySide *s, const char *side) {
  const char *exe = file_in(x, side, ".exe");
  s->metrics = file_in(x, side, ".run/metrics.jsonl"), s->dump = file_in(x, side, ".st");
  *one = *x->o;
  one->c = ctx_new();
  one->planning = one->here = true;
  one->value[OPT_PLAN] = s->plan;
  if (!one->value[OPT_MODEL] && x->a.m) one->value[OPT_MODEL] = x->a.m->model;
  one->value[OPT_TARGET] = x->o->value[OPT_TARGET] ? x->o->value[OPT_TARGET] : "native";
  Exit e = compile_executable(one, exe, &s->m);
  return e == EXIT_FINE ? run_side(x, s, side, exe) : e;
}

/* ---- what is said ---- */

static void say_verdict(const Verify *x, const Verdict *v, bool agrees) {
  printf("plan %s against %s, %u steps\n", name_of(&x->a), name_of(&x->b), v->steps);
  if (v->same_bits) printf("  the same bits in losses, norms and %u tensors\n", v->tensors);
  else {
    printf("  losses   differ by %.2g at most (tolerance %.2g)\n", v->loss, x->t.loss);
    printf("  norms    differ by %.2g at most (tolerance %.2g)\n", v->norm, x->t.norm);
    printf("  tensors  %u differ by %.2g at most (tolerance %.2g)%s%s\n", v->tensors, v->weights,
           x->t.weights, v->worst ? ": " : "", v->worst ? v->worst : "");
  }
  if (v->beneath)
    printf("  not judged: %u parameter%s with gradients of rounding alone: %s%s\n", v->beneath,
           v->beneath > 1 ? "s" : "", v->beneath_name, v->beneath > 1 ? ", .." : "");
  printf("they %s\n", agrees ? "agree" : "differ");
}

static void put_verdict(const Verify *x, const Verdict *v, bool agrees) {
  printf("{\"schema\":1,\"plan\":\"%s\",\"against\":\"%s\",\"steps\":%u,\"agrees\":%s,\"same_"
         "bits\":%s,",
         x->a.plan ? x->a.plan : "", x->b.plan ? x->b.plan : "", v->steps,
         agrees ? "true" : "false", v->same_bits ? "true" : "false");
  printf("\"tolerance\":{\"loss\":%g,\"norm\":%g,\"weights\":%g},", x->t.loss, x->t.norm,
         x->t.weights);
  printf(
      "\"largest\":{\"loss\":%.6g,\"norm\":%.6g,\"weights\":%.6g},\"tensors\":%u,\"not_judged\":%u",
      v->loss, v->norm, v->weights, v->tensors, v->beneath);
  if (v->bad_loss) printf(",\"first_step\":%u", v->bad_loss);
  if (v->bad_tensor) printf(",\"first_tensor\":\"%s\"", v->bad_tensor);
  printf("}\n");
}

static void report_difference(Verify *x, const Verdict *v) {
  Report *r;
  if (v->bad_loss)
    r = diag_at(x->o->c->diag, "E0802", (Span){0},
                "plans `%s` and `%s` train differently: the loss of step %u is %.9g, not %.9g",
                name_of(&x->a), name_of(&x->b), v->bad_loss, v->a_loss, v->b_loss);
  else
    r = diag_at(x->o->c->diag, "E0802", (Span){0}, "plans `%s` and `%s` train differently",
                name_of(&x->a), name_of(&x->b));
  if (v->bad_norm)
    diag_fact(r, "the norm of the gradients of step %u is %.9g, not %.9g", v->bad_norm, v->a_norm,
              v->b_norm);
  if (v->bad_tensor)
    diag_fact(
        r,
        "the first tensor that differs is `%s`, by %.2g of its norm; at %s it holds %.9g, not %.9g",
        v->bad_tensor, v->bad_by, v->bad_index, v->a_value, v->b_value);
  diag_help(r, "`--steps 1` shows where it begins; `--tol %.2g` takes twice these differences",
            2 * fmax(v->loss, fmax(v->norm, v->weights) / 10));
}

/* ---- the command ---- */

static bool has_bytes(const VerifySide *s) {
  return s->m->mesh.n && (plan_int8_gradients(s->m) || plan_int8_weights(s->m));
}

/* Computes in f32, and rounds no message to 8 bits. */
static bool is_wide(const VerifySide *s) { return plan_precision(s->m)[1] == '3' && !has_bytes(s); }

/* Rounding of the narrower type of the two; tensors by ten times as much. An optimizer can move an
   element by lr each step; one whose gradient 8 bits round to 0, beside larger ones, stays where it
   is, so there a tensor may be apart by all that it can have moved. */
static void set_tolerance(Verify *x) {
  bool wide = is_wide(&x->a) && is_wide(&x->b);
  const char *said = x->o->value[OPT_TOL];
  x->t.loss = said ? strtod(said, NULL) : wide ? 1e-5 : 2e-2;
  x->t.rounding = wide ? 1e-6 : 1e-3;
  x->t.norm = 10 * x->t.loss, x->t.weights = 10 * x->t.loss;
  if (!said && (has_bytes(&x->a) || has_bytes(&x->b))) x->t.weights = 1;
  double lr = train_rate(x->b.m);
  x->t.noise = lr * strtod(x->steps, NULL);
}

static Exit judge(Verify *x) {
  Verdict v;
  set_tolerance(x);
  if (!verify_compare(x->o, &x->a, &x->b, &x->t, &v)) return EXIT_ENVIRONMENT;
  bool agrees = !v.bad_loss && !v.bad_norm && !v.bad_tensor;
  if (x->o->value[OPT_JSON]) put_verdict(x, &v, agrees);
  else say_verdict(x, &v, agrees);
  fflush(stdout);
  if (!agrees) report_difference(x, &v);
  return agrees ? EXIT_FINE : EXIT_NO;
}

static bool is_number(const char *text, bool whole) {
  char *end;
  double v = text ? strtod(text, &end) : 1;
  return !text || (end != text && !*end && v > 0 && (!whole || (v == (double)(long)v && v < 1e9)));
}

Exit cmd_verify(Cli *o) {
  const char *base = getenv("TMPDIR"), *steps = o->value[OPT_STEPS];
  Verify x = {.o = o, .steps = steps ? steps : "3"};
  if (!is_number(steps, true)) return cli_usage("`--steps` wants a whole number of at least 1");
  if (!is_number(o->value[OPT_TOL], false)) return cli_usage("`--tol` wants a number above 0");
  x.a.plan = o->value[OPT_PLAN], x.b.plan = o->value[OPT_AGAINST];
  if (!x.a.plan && !x.b.plan) return cli_usage("which plan? --plan NAME, and --against NAME");
  x.folder = arena_printf(o->c->arena, "%s/shardc-verify.XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp((char *)x.folder)) return environment(o, x.folder), cli_report(o, EXIT_ENVIRONMENT);
  Exit e = make_side(&x, &x.side[0], &x.a, "a");
  if (e == EXIT_FINE) e = make_side(&x, &x.side[1], &x.b, "b");
  if (e == EXIT_FINE) e = judge(&x);
  rt_remove_tree(file_in(&x, "a", ".run")), rt_remove_tree(file_in(&x, "b", ".run"));
  rt_remove_tree(x.folder);
  for (int i = 0; i < 2; i++)
    if (x.side[i].c) ctx_free(x.side[i].c);
  return cli_report(o, e);
}
