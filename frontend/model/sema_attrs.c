/* Attributes: those of a parameter, and `@frozen` of a sub or stack, which holds for all parameters
   inside. Other names are E0201. */
#include "sema.h"
#include <string.h>

void attrs_of_param(Eval *e, const AstAttrs *attrs, Param *param) {
  for (uint32_t i = 0; i < attrs->n; i++) {
    const AstAttr *attr = &attrs->at[i];
    if (!strcmp(attr->name.text, "nodecay")) param->nodecay = true;
    else if (!strcmp(attr->name.text, "frozen")) param->frozen = true;
    else if (!strcmp(attr->name.text, "f32")) param->f32 = true;
    else {
      static const char *const names[] = {"nodecay", "f32", "frozen"};
      Report *r =
          eval_error(e, "E0201", attr->name.span, "no attribute named `@%s`", attr->name.text);
      const char *near = diag_nearest(attr->name.text, names, 3);
      diag_help(r, "the attributes of a parameter are @nodecay, @f32, @frozen");
      if (near) diag_edit(r, attr->name.span, "%s", near);
    }
  }
}

static void freeze(Eval *e, const AstAttr *attr, Param *param) {
  param->frozen = true;
  if (!param->ruled) return;
  Report *r = eval_error(e, "E0204", attr->span, "`@frozen`, and `%s` inside has an `update` line",
                         param->path);
  diag_also(r, param->decl->names.at[0].span, "the parameter");
}

void attrs_of_sub(Eval *e, const AstAttrs *attrs, uint32_t first) {
  for (uint32_t i = 0; i < attrs->n; i++) {
    const AstAttr *attr = &attrs->at[i];
    if (!strcmp(attr->name.text, "frozen")) {
      for (uint32_t k = first; k < e->params.n; k++) freeze(e, attr, e->params.at[k]);
      continue;
    }
    Report *r = eval_error(e, "E0201", attr->name.span, "no attribute `@%s` of a sub or stack",
                           attr->name.text);
    diag_help(r, "`@frozen` holds for all parameters inside; others are written at a parameter");
  }
}
