/* The grammar of `.shard` files. An action only calls a builder of ast.c; what a construct means is decided later.
   Mistakes: every list of lines recovers at `;` (which the lexer also gives before every `}`), see ast_parse.c. */
%code requires {
#include "frontend/syntax/ast_reading.h"
}
%code {
int shard_lex(SHARD_STYPE *value, Span *at, Parse *p);
static void shard_error(Span *at, Parse *p, const char *text);
#define YYMAXDEPTH 4000
#define YYLLOC_DEFAULT(at, rhs, n)                                                                 \
  (at) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                                       \
             : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).offset + YYRHSLOC(rhs, 0).length, 0}
}
%define api.pure full
%define api.prefix {shard_}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%param {Parse *p}
%expect 0
%initial-action { (void)yynerrs; /* counted by the skeleton, read by nobody */ }
%union {
  Str text;
  AstNumber *number;
  AstName name;
  AstNames *names;
  AstUses *uses;
  AstGroup *group;
  AstAxes *axes;
  AstType *type;
  AstExpr *expr;
  AstArgs *args;
  AstOptions *options;
  AstAttrs *attrs;
  AstStmt *stmt;
  AstStmts *stmts;
  AstPath *path;
  AstValue *value;
  AstPairs *pairs;
  AstSetting *setting;
  AstBlock *block;
  AstDims *dims;
  AstFormals *formals;
  AstItem *item;
  AstItemKind kind;
  bool random;
}
%token USE "use" DIMS "dims" CONST "const" FN "fn" GRAD "grad" LAYER "layer" MODEL "model" LAYOUT "layout"
%token EXTERN "extern" TRAIN "train" PLAN "plan" MACHINE "machine" WEIGHTS "weights" VARIANT "variant"
%token FOR "for" OF "of" LIKE "like" PAD "pad" AS "as" WITH "with" PARAM "param" SUB "sub" STACK "stack"
%token INPUT "input" OUTPUT "output" RETURN "return" LOSS "loss" AUX "aux" UPDATE "update"
%token PROJECT "project"
%token <text> IDENT "a name" STRING "a string"
%token <number> NUMBER "a number"
%token ARROW "->" LARROW "<-" PIPE "|>" DOTSTAR ".*" DOTDOT ".." LE "<=" GE ">=" EQ "==" NE "!="
%token SEMI ";" COMMA "," LBRACE "{" RBRACE "}" LBRACKET "[" RBRACKET "]" LPAREN "(" RPAREN ")"
%token ASSIGN "=" TILDE "~" AT "@" DOT "." COLON ":"
%token CURSOR "the cursor" /* fits nowhere: see ast_cursor */
%token PLUS "+" MINUS "-" STAR "*" SLASH "/" CARET "^" BAR "|" AND "&" LT "<" GT ">"
%left PIPE
%left BAR
%left AND
%nonassoc LT GT LE GE EQ NE
%left PLUS MINUS
%left STAR SLASH
%precedence UMINUS
%right CARET

%type <name> name axis for_opt
%type <names> names axislist
%type <uses> choice uses
%type <group> group
%type <axes> axes axes_opt shape groups
%type <type> type
%type <expr> expr post
%type <args> args args_opt arg
%type <options> fnargs fnarg with_opt kvs
%type <attrs> attrs
%type <random> init
%type <stmt> stmt
%type <stmts> stmts block
%type <path> path quoted
%type <value> satom text value values strings
%type <pairs> svals sval members
%type <setting> setting head tail
%type <block> sblock sblock_opt settings
%type <dims> dimdecls dimdecl
%type <formals> formals formal
%type <item> item
%type <kind> kind
%%
file: items ;
items: %empty
    | items ";"
    | items item ";"                 { ast_file_add(p, $2, @2); }
    | items extern ";"               { p->file->lost = true; p->bad = false; }
    | items error ";"                { yyerrok; p->file->lost = true; }
    ;
extern: EXTERN not_built name axes_opt "(" formals ")" "->" type sblock ;
not_built: %empty                    { shard_report_extern(p, @0); } ;
item: USE STRING                     { $$ = ast_item_use(p, @1, $2, @2); }
    | DIMS "{" dimdecls "}"          { $$ = ast_item_dims(ast_item_new(p, ITEM_DIMS, @1, (AstName){0}), $3); }
    | CONST name "=" expr            { $$ = ast_item_value(ast_item_new(p, ITEM_CONST, @1, $2), $4); }
    | FN name axes_opt "(" fnargs ")" "=" expr
                                     { $$ = ast_item_value(ast_item_operands(ast_item_new(p, ITEM_FN, @1, $2), $3, $5), $8); }
    | FN name axes_opt "(" fnargs ")" block
                                     { $$ = ast_item_body(ast_item_operands(ast_item_new(p, ITEM_FN, @1, $2), $3, $5), $7); }
    | GRAD name "(" names ")" "=" expr
      { $$ = ast_item_value(ast_item_operands(ast_item_new(p, ITEM_GRAD, @1, $2), NULL, ast_options_of_names(p, $4)), $7); }
    | GRAD name "(" names ")" block
      { $$ = ast_item_body(ast_item_operands(ast_item_new(p, ITEM_GRAD, @1, $2), NULL, ast_options_of_names(p, $4)), $6); }
    | LAYOUT name axes "=" expr
      { $$ = ast_item_value(ast_item_operands(ast_item_new(p, ITEM_LAYOUT, @1, $2), $3, NULL), $5); }
    | LAYER name axes_opt "(" formals ")" "->" type with_opt block
      { $$ = ast_item_body(ast_item_layer(ast_item_new(p, ITEM_LAYER, @1, $2), $3, $5, $8, $9), $10); }
    | MODEL name block               { $$ = ast_item_body(ast_item_new(p, ITEM_MODEL, @1, $2), $3); }
    | VARIANT name OF name "{" dimdecls "}"
      {
        $$ = ast_item_block(p, ast_item_new(p, ITEM_VARIANT, @1, $2), $4, NULL);
        ast_item_dims($$, $6);
      }
    | kind name for_opt sblock
      { $$ = ast_item_block(p, ast_item_new(p, $1, @1, $2), $3, $4); }
    | MACHINE name sblock
      { $$ = ast_item_block(p, ast_item_new(p, ITEM_MACHINE, @1, $2), (AstName){0}, $3); }
    | WEIGHTS name FOR name sblock
      { $$ = ast_item_block(p, ast_item_new(p, ITEM_WEIGHTS, @1, $2), $4, $5); }
    ;
kind: TRAIN                          { $$ = ITEM_TRAIN; }
    | PLAN                           { $$ = ITEM_PLAN; }
    ;
for_opt: %empty                      { $$ = (AstName){0}; }
    | FOR name                       { $$ = $2; }
    ;
name: IDENT                          { $$ = ast_name_at($1, @1); } ;
fnargs: fnarg
    | fnargs "," name                { $$ = ast_options_add(p, $1, $3, NULL, @3); }
    | fnargs "," name "=" expr       { $$ = ast_options_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
fnarg: name                          { $$ = ast_options_add(p, NULL, $1, NULL, @1); }
    | name "=" expr                  { $$ = ast_options_add(p, NULL, $1, $3, @$); }
    ;
names: name                          { $$ = ast_names_add(p, NULL, $1); }
    | names "," name                 { $$ = ast_names_add(p, $1, $3); }
    ;
dimdecls: %empty                     { $$ = NULL; }
    | dimdecls ";"
    | dimdecls dimdecl ";"           { $$ = ast_dims_join(p, $1, $2); }
    | dimdecls error ";"             { yyerrok; p->file->lost_dims = true; }
    ;
dimdecl: names                       { $$ = ast_dims_add(p, NULL, $1, NULL, NULL, @$); }
    | names "=" expr                 { $$ = ast_dims_add(p, NULL, $1, $3, NULL, @$); }
    | names "=" expr PAD NUMBER      { $$ = ast_dims_add(p, NULL, $1, $3, $5, @$); }
    | name LIKE name                 { $$ = ast_dims_like(p, NULL, $1, $3, @$); }
    ;
axes: "[" groups "]"                 { $$ = ast_axes_close($2, @$); } ;
shape: axes
    | "[" "]"                        { $$ = ast_axes_close(ast_axes_add(p, NULL, ast_group_new(p, NULL, NULL, @$)), @$); }
    ;
axes_opt: %empty                     { $$ = NULL; }
    | axes
    ;
groups: group                        { $$ = ast_axes_add(p, NULL, $1); }
    | groups ";" group               { $$ = ast_axes_add(p, $1, $3); }
    ;
group: axislist                      { $$ = ast_group_new(p, $1, NULL, @$); }
    | axislist "->" axislist         { $$ = ast_group_new(p, $1, $3, @$); }
    ;
axislist: axis                       { $$ = ast_names_add(p, NULL, $1); }
    | axislist "," axis              { $$ = ast_names_add(p, $1, $3); }
    ;
axis: name
    | "*"                            { $$ = ast_name_at(intern(p->c->names, "*"), @1); }
    ;
type: shape                          { $$ = ast_type_new(p, $1, (AstName){0}, (AstName){0}, @$); }
    | shape OF name                  { $$ = ast_type_new(p, $1, $3, (AstName){0}, @$); }
    | shape name                     { $$ = ast_type_new(p, $1, (AstName){0}, $2, @$); }
    ;
formals: formal
    | formals "," name ":" type      { $$ = ast_formals_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
formal: name ":" type                { $$ = ast_formals_add(p, NULL, $1, $3, @$); } ;
with_opt: %empty                     { $$ = NULL; }
    | WITH kvs                       { $$ = $2; }
    ;
kvs: name "=" expr                   { $$ = ast_options_add(p, NULL, $1, $3, @$); }
    | kvs "," name "=" expr          { $$ = ast_options_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
block: "{" stmts "}"                 { $$ = $2; } ;
stmts: %empty                        { $$ = NULL; }
    | stmts ";"
    | stmts stmt ";"                 { $$ = ast_stmts_add(p, $1, ast_stmt_close($2, @2)); }
    | stmts error ";"                { yyerrok; }
    ;
stmt: PARAM name shape init expr attrs { $$ = ast_stmt_param(p, @1, $2, $3, $4, $5, $6); }
    | SUB name "=" name axes_opt with_opt attrs { $$ = ast_stmt_sub(p, @1, $2, $4, $5, $6, $7); }
    | STACK name axes OF choice with_opt attrs  { $$ = ast_stmt_stack(p, @1, $2, $3, $5, $6, $7); }
    | INPUT names type               { $$ = ast_stmt_names(p, STMT_INPUT, @1, $2, $3); }
    | OUTPUT names                   { $$ = ast_stmt_names(p, STMT_OUTPUT, @1, $2, NULL); }
    | names "=" expr attrs           { $$ = ast_stmt_assign(p, $1, $3, $4); }
    | RETURN expr                    { $$ = ast_stmt_value(p, STMT_RETURN, @1, $2); }
    | LOSS expr                      { $$ = ast_stmt_value(p, STMT_LOSS, @1, $2); }
    | AUX expr                       { $$ = ast_stmt_value(p, STMT_AUX, @1, $2); }
    | UPDATE name "=" expr           { $$ = ast_stmt_rule(p, STMT_UPDATE, @1, $2, $4); }
    | PROJECT name "=" expr          { $$ = ast_stmt_rule(p, STMT_PROJECT, @1, $2, $4); }
    ;
choice: name axes_opt                 { $$ = ast_uses_add(p, NULL, $1, $2); }
    | "(" uses ")"                   { $$ = $2; }
    ;
uses: name axes_opt                  { $$ = ast_uses_add(p, NULL, $1, $2); }
    | uses "," name axes_opt         { $$ = ast_uses_add(p, $1, $3, $4); }
    ;
init: "~"                            { $$ = true; }
    | "="                            { $$ = false; }
    ;
attrs: %empty                        { $$ = NULL; }
    | attrs "@" name                 { $$ = ast_attrs_add(p, $1, $3, NULL, span_join(@2, @3)); }
    | attrs "@" name "(" args ")"    { $$ = ast_attrs_add(p, $1, $3, $5, span_join(@2, @6)); }
    ;
expr: expr "+" expr                  { $$ = ast_expr_binary(p, AST_ADD, $1, $3, @2, @$); }
    | expr "-" expr                  { $$ = ast_expr_binary(p, AST_SUB, $1, $3, @2, @$); }
    | expr "*" expr                  { $$ = ast_expr_binary(p, AST_MUL, $1, $3, @2, @$); }
    | expr "/" expr                  { $$ = ast_expr_binary(p, AST_DIV, $1, $3, @2, @$); }
    | expr "^" expr                  { $$ = ast_expr_binary(p, AST_POW, $1, $3, @2, @$); }
    | expr "|" expr                  { $$ = ast_expr_binary(p, AST_OR, $1, $3, @2, @$); }
    | expr "&" expr                  { $$ = ast_expr_binary(p, AST_AND, $1, $3, @2, @$); }
    | expr "<" expr                  { $$ = ast_expr_binary(p, AST_LT, $1, $3, @2, @$); }
    | expr ">" expr                  { $$ = ast_expr_binary(p, AST_GT, $1, $3, @2, @$); }
    | expr "<=" expr                 { $$ = ast_expr_binary(p, AST_LE, $1, $3, @2, @$); }
    | expr ">=" expr                 { $$ = ast_expr_binary(p, AST_GE, $1, $3, @2, @$); }
    | expr "==" expr                 { $$ = ast_expr_binary(p, AST_EQ, $1, $3, @2, @$); }
    | expr "!=" expr                 { $$ = ast_expr_binary(p, AST_NE, $1, $3, @2, @$); }
    | expr "|>" expr                 { $$ = ast_expr_pipe(p, $1, $3, @2, @$); }
    | "-" expr %prec UMINUS          { $$ = ast_expr_negate(p, $2, @1, @$); }
    | post
    ;
post: NUMBER                         { $$ = ast_expr_number(p, $1); }
    | STRING                         { $$ = ast_expr_string(p, $1, @1); }
    | "(" expr ")"                   { $$ = $2; }
    | "[" args "]"                   { $$ = ast_expr_list(p, $2, @$); }
    | post "." name                  { $$ = ast_expr_field(p, $1, $3, @$); }
    | name                           { $$ = ast_expr_name(p, $1); }
    | name "[" name "=" expr "]"     { $$ = ast_expr_gather(p, $1, $3, $5, @$); }
    | name axes                      { $$ = ast_expr_axes(p, $1, $2, @$); }
    | name "(" args_opt ")"          { $$ = ast_expr_call(p, $1, NULL, $3, @$); }
    | name axes "(" args_opt ")"     { $$ = ast_expr_call(p, $1, $2, $4, @$); }
    | PAD axes "(" args ")"          { $$ = ast_expr_call(p, ast_name_at(intern(p->c->names, "pad"), @1), $2, $4, @$); }
    ;
args_opt: %empty                     { $$ = NULL; }
    | args
    ;
args: arg
    | args "," expr                  { $$ = ast_args_add(p, $1, (AstName){0}, $3, @3); }
    | args "," name "=" expr         { $$ = ast_args_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
arg: expr                            { $$ = ast_args_add(p, NULL, (AstName){0}, $1, @$); }
    | name "=" expr                  { $$ = ast_args_add(p, NULL, $1, $3, @$); }
    ;
sblock: "{" settings "}"             { $$ = ast_block_close(p, $2, @$); } ;
sblock_opt: %empty                   { $$ = NULL; }
    | sblock
    ;
settings: %empty                     { $$ = NULL; }
    | settings ";"
    | settings setting ";"           { $$ = ast_block_add(p, $1, $2); }
    | settings error ";"             { yyerrok; }
    ;
setting: path head tail sblock_opt   { $$ = ast_setting_join($1, $2, $3, $4, @$); }
    | path "[" strings "]" head tail sblock_opt
      {
        AstValue *list = ast_value_list($3, span_join(@2, @4));
        $$ = ast_setting_join($1, ast_setting_list(p, list, $5), $6, $7, @$);
      }
    ;
strings: text                        { $$ = ast_value_list_add(p, NULL, $1); }
    | strings "," text               { $$ = ast_value_list_add(p, $1, $3); }
    ;
head: %empty                         { $$ = ast_setting_head(p, NULL, NULL); }
    | svals                          { $$ = ast_setting_head(p, NULL, $1); }
    | "(" expr ")"                   { $$ = ast_setting_head(p, $2, NULL); }
    | "(" expr ")" svals             { $$ = ast_setting_head(p, $2, $4); }
    ;
tail: %empty                         { $$ = NULL; }
    | "->" svals                     { $$ = ast_setting_tail(p, ARROW_RIGHT, @1, $2, NULL); }
    | "<-" svals                     { $$ = ast_setting_tail(p, ARROW_LEFT, @1, $2, NULL); }
    | "<-" svals AS axes             { $$ = ast_setting_tail(p, ARROW_LEFT, @1, $2, $4); }
    ;
svals: sval
    | svals satom                    { $$ = ast_pairs_add(p, $1, NULL, $2, @2); }
    | svals path "=" value           { $$ = ast_pairs_add(p, $1, $2, $4, span_join(@2, @4)); }
    | svals quoted "=" value         { $$ = ast_pairs_add(p, $1, $2, $4, span_join(@2, @4)); }
    | svals "," quoted "=" value     { $$ = ast_pairs_add(p, $1, $3, $5, span_join(@3, @5)); }
    | svals "," satom                { $$ = ast_pairs_add(p, $1, NULL, $3, @3); }
    | svals "," path "=" value       { $$ = ast_pairs_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
sval: satom                          { $$ = ast_pairs_add(p, NULL, NULL, $1, @$); }
    | path "=" value                 { $$ = ast_pairs_add(p, NULL, $1, $3, @$); }
    | quoted "=" value               { $$ = ast_pairs_add(p, NULL, $1, $3, @$); }
    ;
value: satom
    | "(" expr ")"                   { $$ = ast_value_expr(p, $2, @$); }
    | "[" values "]"                 { $$ = ast_value_list($2, @$); }
    | "[" members "]"                { $$ = ast_value_object(p, $2, @$); }
    ;
members: path "=" value              { $$ = ast_pairs_add(p, NULL, $1, $3, @$); }
    | members "," path "=" value     { $$ = ast_pairs_add(p, $1, $3, $5, span_join(@3, @5)); }
    ;
values: value                        { $$ = ast_value_list_add(p, NULL, $1); }
    | values "," value               { $$ = ast_value_list_add(p, $1, $3); }
    ;
quoted: STRING                       { $$ = ast_path_quoted(p, $1, @1); } ;
text: STRING                         { $$ = ast_value_string(p, $1, @1); } ;
satom: NUMBER                        { $$ = ast_value_number(p, $1); }
    | "-" NUMBER                     { $$ = ast_value_number(p, ast_number_negate(p, $2, @$)); }
    | text
    | path                           { $$ = ast_value_path(p, $1); }
    | path "(" svals ")"             { $$ = ast_value_call(p, $1, $3, NULL, @$); }
    | path "(" svals "->" svals ")"  { $$ = ast_value_call(p, $1, $3, $5, @$); }
    ;
path: name                           { $$ = ast_path_new(p, $1); }
    | path "." name                  { $$ = ast_path_name(p, $1, $3, @$); }
    | path "." NUMBER                { $$ = ast_path_index(p, $1, $3, @$); }
    | path ".*"                      { $$ = ast_path_any(p, $1, @2, @$); }
    | path "[" NUMBER ".." NUMBER "]" { $$ = ast_path_range(p, $1, $3, $5, @$); }
    | path "[" NUMBER "]"            { $$ = ast_path_bracket(p, $1, $3, @2, @4, @$); }
    ;
%%
static int yyreport_syntax_error(const yypcontext_t *context, Parse *p) {
  yysymbol_kind_t kinds[MOST_EXPECTED];
  const char *names[MOST_EXPECTED];
  int n = yypcontext_expected_tokens(context, kinds, MOST_EXPECTED);
  for (int i = 0; i < n; i++) names[i] = yysymbol_name(kinds[i]);
  yysymbol_kind_t found = yypcontext_token(context);
  if (found == YYSYMBOL_CURSOR) return shard_at_cursor(p, names, n > 0 ? n : 0), 0;
  shard_report_syntax(p, *yypcontext_location(context), p->last, yysymbol_name(found), names, n > 0 ? n : 0);
  return 0;
}

/* Called for the one other mistake that the generated parser knows: its stack is full. */
static void shard_error(Span *at, Parse *p, const char *text) {
  (void)text;
  shard_report_depth(p, *at);
}
