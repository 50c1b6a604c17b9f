/* Inside of lowering: what its files share. */
#ifndef SHARDC_LOWER_BUILD_H
#define SHARDC_LOWER_BUILD_H
#include "lower.h"
#include "frontend/model/build.h"
#include "frontend/train/train.h"

/* ---- what is chosen for a program (lower_choose.c) ---- */
bool choose_program(World *w, const LowerOptions *options, Choice *out);
/* FILE declares no other model or variant or, if it declares none, the files it uses; or NULL. */
const Decl *choose_only_model(World *w);
/* A plan of FILE that would serve, when none was asked for; NULL: none. */
Str choose_plan_left(World *w, const Choice *choice);
/* The name of the train block, where the model has others as well; else NULL. */
Str choose_train_name(World *w, const Choice *choice);
/* Its base and the first train block that fits, of FILE where it has some; false: a wrong base. */
bool choose_for_model(World *w, const Decl *model, Choice *out);
bool choose_next_train(World *w, Choice *choice); /* false: there was none after it */
Sizes *choice_sizes(World *w, const Choice *choice);
void give_command_line(World *w, Sizes *sizes, const LowerOptions *options);

/* --set: train block, plan and machine become copies with these settings. E0601, E0602, E0901 */
void apply_command_line(World *w, Choice *choice, const LowerOptions *options);
void write_settings(Module *m, Eval *e, const Choice *choice, const LowerOptions *options);
void write_train(Module *m, Eval *e, const Choice *choice); /* with its line `data` */
/* Lowers the facts that bind data: dims, inputs, settings of the train block (lower.c). */
Module *lower_inputs(World *w, Eval *checked, const Choice *choice);

/* ---- words that no pass implements yet (unbuilt_words.c) ---- */
void check_unbuilt(World *w, const AstItem *item); /* E0901, N0902: settings of a block */
void check_built(World *w, const Choice *choice);  /* all blocks of a program, and N0901 */

void write_mesh(Build *build, const Sizes *sizes, const AstItem *plan); /* lower_plan.c */
/* Words of settings that passes may have to refuse. */
void write_written_blocks(Module *m, World *w, const Choice *choice);

/* ---- layouts for people (lower_layout.c) ---- */
/* Figures of what a checked model uses, added to out, which may be NULL; W0304 */
void layouts_of(Eval *checked, LayoutList *out);
void draw_layouts(Eval *checked, LayoutDrawings *out);

void lower_init(Build *build, Eval *e); /* the entry that makes initial values */
#endif
