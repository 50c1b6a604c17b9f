/* `shardc verify`: checks that a plan changes results only by rounding, by training a few steps
   under two plans from the same seed and data, as processes of this machine, whatever machine the
   plans are for. Losses, norms, parameters and states are compared (verify_compare.c). The
   reference is one rank in f32, unless another plan is named. If they differ, a program of one rank
   with noise in its sums runs several times, and the results are compared again with the spread of
   these runs as rounding. */
#include "verify_runs.h"
#include "driver/sheet/sheet.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include "runtime/start_ranks.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/optimizers.h"
#include "ir/support/refused.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Verify {
  Cli *o;
  const char *folder, *steps;
  VerifySide a, b;
  NoisyRuns noisy;
  Cli side[3]; /* of a, b, and the program with noise; with contexts of their own */
  Tolerance t;
} Verify;

static const char *name_of(const VerifySide *verify_side) {
  return verify_side->plan ? verify_side->plan : "(none written)";
}

/* ---- one side ---- */

static const char *file_in(const Verify *verify, const char *side, const char *end) {
  return arena_printf(verify->o->c->arena, "%s/%s%s", verify->folder, side, end);
}

static Exit environment(Cli *o, const char *what) {
  diag_refused(o->c->diag, "E0002", CANNOT_MAKE_TEMPORARY, what);
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

static _Noreturn void become_ranks(char **command, int n, const char *noise, const char *log) {
  int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(EXIT_ENVIRONMENT);
  if (noise && setenv("SHARDC_NOISE", noise, 1)) _exit(EXIT_ENVIRONMENT);
  _exit(rt_start_ranks(&(RankStart){.program = "shardc", .command = command, .n = n, .world = n}));
}

/* Output goes to a log, which is shown only if the command fails. */
static Exit run_quietly(Verify *verify, const VerifySide *verify_side, char **command,
                        const char *noise, const char *log) {
  int status, n = (int)mesh_ranks(verify_side->m);
  fflush(stdout), fflush(stderr);
  pid_t pid = fork();
  if (pid == 0) become_ranks(command, n, noise, log);
  if (pid < 0 || waitpid(pid, &status, 0) < 0) return environment(verify->o, log);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BUG;
  if (!code) return EXIT_FINE;
  show_log(log);
  Report *r =
      diag_at(verify->o->c->diag, "E0803", (Span){0},
              "the run under plan `%s` failed with exit status %d", name_of(verify_side), code);
  if (code == EXIT_ENVIRONMENT) diag_help(r, "options of the run follow `--`: `-- --data FILE`");
  return EXIT_ENVIRONMENT;
}

static Exit run_side(Verify *verify, VerifySide *verify_side, const char *side, const char *exe,
                     const char *noise) {
  Strings words = {0};
  verify_side->metrics = file_in(verify, side, ".run/metrics.jsonl"),
  verify_side->dump = file_in(verify, side, ".st");
  const char *const fixed[] = {
      exe,       "train",           "--out",        file_in(verify, side, ".run"),
      "--steps", verify->steps,     "--save-every", "0",
      "--dump",  verify_side->dump, "--quiet"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    vec_push(verify->o->c->arena, words, fixed[i]);
  for (uint32_t i = 1; i < verify->o->operands.n; i++)
    vec_push(verify->o->c->arena, words, verify->o->operands.at[i]);
  vec_push(verify->o->c->arena, words, NULL);
  return run_quietly(verify, verify_side, (char **)words.at, noise, file_in(verify, side, ".log"));
}

static Exit compile_side(Verify *verify, Cli *one, VerifySide *verify_side, double noise,
                         const char *exe) {
  *one = cli_again(verify->o);
  one->planning = one->here = true, one->noise = noise;
  one->value[OPT_PLAN] = verify_side->plan;
  if (!one->value[OPT_MODEL] && verify->a.m) one->value[OPT_MODEL] = verify->a.m->model;
  one->value[OPT_TARGET] = verify->o->value[OPT_TARGET] ? verify->o->value[OPT_TARGET] : "native";
  return compile_executable(one, exe, &verify_side->m);
}

static Exit make_side(Verify *verify, Cli *one, VerifySide *verify_side, const char *side) {
  const char *exe = file_in(verify, side, ".exe");
  Exit e = compile_side(verify, one, verify_side, 0, exe);
  return e == EXIT_FINE ? run_side(verify, verify_side, side, exe, NULL) : e;
}

/* One program, which runs with other noise each time. */
static Exit make_noisy(Verify *verify) {
  const char *exe = file_in(verify, "noisy", ".exe");
  VerifySide program = {0};
  Exit e = compile_side(verify, &verify->side[2], &program, verify->t.noise, exe);
  for (uint32_t k = 0; e == EXIT_FINE && k < NOISY_RUNS; k++) {
    const char *number = arena_printf(verify->o->c->arena, "%u", k + 1),
               *side = arena_printf(verify->o->c->arena, "noisy%u", k + 1);
    verify->noisy.at[k] = program;
    e = run_side(verify, &verify->noisy.at[k], side, exe, number);
  }
  verify->noisy.n = NOISY_RUNS;
  return e;
}

/* ---- what is said ---- */

static void say_series(Sheet *sheet, const char *name, double by, double tolerance,
                       double rounding) {
  sheet_say(sheet, "  {:-8} differ by {:.2} at most (tolerance {:.2}", as_text(name), as_number(by),
            as_number(tolerance));
  sheet_say_if(sheet, rounding > tolerance, ", and {:.2} for rounding", as_number(rounding));
  sheet_say(sheet, ")\n");
}

static void say_excused(Sheet *sheet, const Verdict *verdict) {
  bool several = verdict->excused_tensors > 1;
  sheet_say_if(sheet, verdict->excused,
               "  rounding alone decides {not_judged} element{} of {} tensor{}: {}{}\n",
               as_count((double)verdict->excused), as_text(verdict->excused > 1 ? "s" : ""),
               as_count(verdict->excused_tensors), as_text(several ? "s" : ""),
               as_text(verdict->excused_name), as_text(several ? ", .." : ""));
}

static void say_verdict(Sheet *sheet, const Verify *verify, const Verdict *verdict, bool agrees) {
  sheet_say(sheet, "plan {} against {}, {steps} steps\n", as_text(name_of(&verify->a)),
            as_text(name_of(&verify->b)), as_count(verdict->steps));
  if (verdict->same_bits)
    sheet_say(sheet, "  the same bits in losses, norms and {} tensors\n",
              as_count(verdict->tensors));
  else {
    say_series(sheet, "losses", verdict->loss, verify->t.loss, verdict->loss_rounding);
    say_series(sheet, "norms", verdict->norm, verify->t.norm, verdict->norm_rounding);
    sheet_say(sheet, "  tensors  {} differ by {:.2} at most (tolerance {:.2}){}{}\n",
              as_count(verdict->tensors), as_number(verdict->weights), as_number(verify->t.weights),
              as_text(verdict->worst ? ": " : ""), as_text(verdict->worst));
  }
  sheet_say_if(sheet, verdict->left_out,
               "  not compared: {not_compared} tensor{} that one plan keeps otherwise: {}{}\n",
               as_count(verdict->left_out), as_text(verdict->left_out > 1 ? "s" : ""),
               as_text(verdict->left_out_name), as_text(verdict->left_out > 1 ? ", .." : ""));
  say_excused(sheet, verdict);
  sheet_say(sheet, "they {agrees}\n", as_flag(agrees, "agree", "differ"));
}

static void put_verdict(Sheet *sheet, const Verify *verify, const Verdict *verdict) {
  sheet_put(sheet, "{schema}{plan}{against}{same_bits}{tensors}", as_count(1),
            as_text(verify->a.plan), as_text(verify->b.plan), as_flag(verdict->same_bits, "", ""),
            as_count(verdict->tensors));
  sheet_put(sheet, "{tolerance.loss}{tolerance.norm}{tolerance.weights}", as_number(verify->t.loss),
            as_number(verify->t.norm), as_number(verify->t.weights));
  sheet_put(sheet, "{largest.loss}{largest.norm}{largest.weights}", as_number(verdict->loss),
            as_number(verdict->norm), as_number(verdict->weights));
  if (verdict->bad_loss) sheet_put(sheet, "{first_step}", as_count(verdict->bad_loss));
  if (verdict->bad_tensor) sheet_put(sheet, "{first_tensor}", as_text(verdict->bad_tensor));
}

static void report_difference(Verify *verify, const Verdict *verdict) {
  Report *r;
  if (verdict->bad_loss)
    r = diag_at(verify->o->c->diag, "E0802", (Span){0},
                "plans `%s` and `%s` train differently: the loss of step %u is %.9g, not %.9g",
                name_of(&verify->a), name_of(&verify->b), verdict->bad_loss, verdict->a_loss,
                verdict->b_loss);
  else
    r = diag_at(verify->o->c->diag, "E0802", (Span){0}, "plans `%s` and `%s` train differently",
                name_of(&verify->a), name_of(&verify->b));
  if (verdict->bad_norm)
    diag_fact(r, "the norm of the gradients of step %u is %.9g, not %.9g", verdict->bad_norm,
              verdict->a_norm, verdict->b_norm);
  if (verdict->bad_tensor)
    diag_fact(
        r,
        "the first tensor that differs is `%s`, by %.2g of its norm; at %s it holds %.9g, not %.9g",
        verdict->bad_tensor, verdict->bad_by, verdict->bad_index, verdict->a_value,
        verdict->b_value);
  diag_help(r, "`--steps 1` shows where it begins; `--tol %.2g` accepts twice these differences",
            2 * fmax(verdict->loss, fmax(verdict->norm, verdict->weights) / 10));
}

/* ---- the command ---- */

static bool has_bytes(const VerifySide *verify_side) {
  return verify_side->m->mesh.n &&
         (plan_int8_gradients(verify_side->m) || plan_int8_weights(verify_side->m));
}

/* Does a line of its optimizer keep moments in 8 bits? A last bit may decide how one is rounded. */
static bool has_codes(const VerifySide *side) {
  for (int i = 0; i <= optimizer_lines(side->m); i++) {
    Str states = module_said(side->m, optimizer_key(side->m, i, "train.optim.states"));
    if (states && !strcmp(states, "int8")) return true;
  }
  return false;
}

/* Do its gradients travel in 16 bits? */
static bool has_narrow_messages(const VerifySide *verify_side) {
  Str reduce = plan_message_type(verify_side->m);
  return verify_side->m->mesh.n && reduce && !strstr(reduce, "32");
}

/* Computes in f32, and rounds no message to fewer bits. */
static bool is_wide(const VerifySide *verify_side) {
  return plan_precision(verify_side->m)[1] == '3' && !has_bytes(verify_side) &&
         !has_narrow_messages(verify_side);
}

/* Rounding of the narrower type of the two; tensors by ten times as much. With 8-bit messages a
   gradient that is small within its block is rounded to 0 and its element does not move, so a
   tensor may differ by the largest possible move; likewise with moments in 8 bits. */
static void set_tolerance(Verify *verify) {
  bool wide = is_wide(&verify->a) && is_wide(&verify->b);
  const char *said = verify->o->value[OPT_TOL];
  verify->t.loss = said ? strtod(said, NULL) : wide ? 1e-5 : 2e-2;
  verify->t.noise = wide ? 0x1p-23 : 0x1p-8; /* of f32, of bf16: steps between numbers near 1 */
  verify->t.norm = 10 * verify->t.loss, verify->t.weights = 10 * verify->t.loss;
  bool coarse = has_bytes(&verify->a) || has_bytes(&verify->b) || has_codes(&verify->a) ||
                plan_eights(verify->a.m) || plan_eights(verify->b.m);
  if (!said && coarse) verify->t.weights = 1;
  verify->t.move = optimizer_fastest(verify->b.m) * strtod(verify->steps, NULL);
}

static bool agree(const Verdict *verdict) {
  return !verdict->bad_loss && !verdict->bad_norm && !verdict->bad_tensor;
}

static Exit compare(Verify *verify, Verdict *verdict) {
  bool read =
      verify_compare(verify->o, &verify->a, &verify->b, &verify->noisy, &verify->t, verdict);
  return read ? EXIT_FINE : EXIT_ENVIRONMENT;
}

static Exit judge(Verify *verify) {
  Verdict verdict;
  set_tolerance(verify);
  Exit e = compare(verify, &verdict);
  if (e == EXIT_FINE && !agree(&verdict) && (e = make_noisy(verify)) == EXIT_FINE)
    e = compare(verify, &verdict);
  if (e != EXIT_FINE) return e;
  Sheet *sheet = sheet_new(verify->o->c->arena);
  put_verdict(sheet, verify, &verdict), say_verdict(sheet, verify, &verdict, agree(&verdict));
  sheet_show(sheet, verify->o->value[OPT_JSON]);
  if (!agree(&verdict)) report_difference(verify, &verdict);
  return agree(&verdict) ? EXIT_FINE : EXIT_NO;
}

static void remove_folders(Verify *verify) {
  rt_remove_tree(file_in(verify, "a", ".run")), rt_remove_tree(file_in(verify, "b", ".run"));
  for (uint32_t k = 0; k < NOISY_RUNS; k++)
    rt_remove_tree(arena_printf(verify->o->c->arena, "%s/noisy%u.run", verify->folder, k + 1));
  rt_remove_tree(verify->folder);
}

static bool is_above_0(const char *text) {
  char *end;
  double v = strtod(text, &end);
  return end != text && !*end && v > 0 && isfinite(v);
}

Exit cmd_verify(Cli *o) {
  const char *base = getenv("TMPDIR"), *tol = o->value[OPT_TOL];
  Verify verify = {.o = o, .steps = o->value[OPT_STEPS] ? o->value[OPT_STEPS] : "3"};
  int64_t steps;
  if (cli_whole(o, OPT_STEPS, 1, MOST_NUMBER, &steps) != EXIT_FINE) return EXIT_USAGE;
  if (tol && !is_above_0(tol)) return cli_usage("`--tol` takes a number above 0, not `%s`", tol);
  verify.a.plan = o->value[OPT_PLAN], verify.b.plan = o->value[OPT_AGAINST];
  if (!verify.a.plan && !verify.b.plan)
    return cli_usage("which plan? --plan NAME, and --against NAME");
  verify.folder =
      arena_printf(o->c->arena, "%s/shardc-verify.XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp((char *)verify.folder))
    return environment(o, verify.folder), cli_report(o, EXIT_ENVIRONMENT);
  file_kind(o->c, o->operands.at[0]); /* reads standard input for both plans */
  Exit e = make_side(&verify, &verify.side[0], &verify.a, "a");
  if (e == EXIT_FINE) e = make_side(&verify, &verify.side[1], &verify.b, "b");
  if (e == EXIT_FINE) e = judge(&verify);
  remove_folders(&verify);
  for (size_t i = 0; i < COUNT_OF(verify.side); i++)
    if (verify.side[i].c) ctx_free(verify.side[i].c);
  return cli_report(o, e);
}
