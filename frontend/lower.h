/* From a file to IR: what the driver calls. Names, dims, settings are checked first; lowering
 * itself cannot fail. */
#ifndef SHARDC_LOWER_H
#define SHARDC_LOWER_H
#include "layout.h"
#include "ir/ir.h"

typedef struct LayoutDrawings {
  const char *name; /* of a layout; NULL: all that the model uses */
  VEC(const Layout *) drawn;
  VEC(const char *) names; /* of all layouts of the files */
} LayoutDrawings;

typedef struct SearchedPlan { /* of which no module is made */
  const char *word;           /* "mesh auto"; NULL: it is no such plan */
  Span at;
} SearchedPlan;

typedef struct LowerOptions {
  const char *path;    /* FILE */
  const char *written; /* one more block, as if FILE ended with it; NULL: none */
  const char *model, *train,
      *plan;               /* names given on the command line, NULL: by the rules of the language */
  const char *const *dims; /* "Embed=64": sizes given on the command line, the last one wins */
  uint32_t ndims;
  const char *const *sets; /* "train.steps=10": settings given on the command line */
  uint32_t nsets;
  LayoutDrawings *layouts; /* filled in; may be NULL */
  SearchedPlan *searched;  /* filled in */
} LowerOptions;

/* FILE and the files it uses -> a module with entries init, step, eval, logits, after "lower".
   NULL: diagnostics with errors were given, or FILE cannot be read (then there are none). */
Module *lower_program(Ctx *c, const LowerOptions *options);

typedef struct CheckedModel {
  Str name;           /* of a model or variant of FILE */
  Str train;          /* the block that gave its sizes; NULL: none; one row for each number */
  bool counted;       /* false: its parameters have open dims */
  int64_t parameters; /* logical, without padding */
} CheckedModel;

typedef struct CheckedLayout {
  Str model; /* that uses it */
  LayoutFigures figures;
} CheckedLayout;

typedef struct CheckedPlan {
  Str name;  /* of a plan of FILE */
  Str train; /* the block with which it was checked; NULL: with none; a plan has one row for each */
  Span span;
  bool sized;  /* its machine says how much memory there is, and what model it is for is known */
  bool judged; /* so passes judge it; or it has lines that they judge alone */
} CheckedPlan;

typedef struct CheckedFile {
  Str path; /* as written, or a pattern */
  Span span;
} CheckedFile;

typedef struct CheckedData { /* of a train block and a model that it fits, all sizes known */
  const Module *m;           /* dims, inputs, settings */
  Span line;
  VEC(CheckedFile) files;
} CheckedData;

typedef struct CheckResult {
  struct PlaceWatch *watch; /* of the caller: a place of FILE (model/sema_watch.c); NULL: none */
  struct World *world;      /* what was read */
  VEC(CheckedData) data;
  VEC(CheckedModel) models;
  VEC(CheckedPlan) plans;
  VEC(CheckedLayout) layouts;
} CheckResult;

/* Names of the plans of FILE itself, in order, separated by commas; "" if there are none. NULL:
   FILE cannot be read, or has mistakes. */
const char *program_plans(Ctx *c, const char *path);

/* Is `on`, "h100 nodes = 2" of `--on`, about a machine of FILE or of a file that it uses? If not,
   E0201 is at that option's words. */
bool program_has_machine(Ctx *c, const char *path, const char *on);

/* The text of a plan that FILE or a file that it uses has: its model and the text after the word
   `on`, "" if it names none, and its lines except those that begin with one of `without`, "on,
   mesh", each with its end. False: there is no such plan. */
typedef struct PlanText {
  const char *model, *on, *rest;
} PlanText;
bool program_plan_text(Ctx *c, const char *path, const char *plan, const char *without,
                       PlanText *out);

/* All models, variants, layers, train, plan, machine and weights blocks of FILE. False: FILE cannot
   be read. Mistakes are in the diagnostics. `out` may be NULL. */
bool check_program(Ctx *c, const char *path, CheckResult *out);
#endif
