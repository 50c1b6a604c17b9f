/* Files for editors, and the dictionary of the fuzzer, from the tables of words. Parts of `shardc
   reference`. */
#include "driver/cmd.h"
#include "frontend/syntax/keywords.h"
#include "frontend/syntax/operators.h"
#include "frontend/settings/settings.h"

/* ---- lists of words ---- */

typedef void WordSink(const char *word, void *data);

static void each_keyword(unsigned roles, WordSink *sink, void *data) {
  uint32_t n;
  const Keyword *k = keyword_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (roles & (1u << k[i].role)) sink(k[i].word, data);
}

static void each_operator(unsigned sections, WordSink *sink, void *data) {
  uint32_t n;
  const Operator *t = operator_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    bool again = false;
    for (uint32_t k = 0; k < i; k++) again |= !strcmp(t[k].name, t[i].name);
    if (!again && (sections & (1u << t[i].section))) sink(t[i].name, data);
  }
}

/* Words of lines, or keys and choices. */
static void each_setting(unsigned lines, WordSink *sink, void *data) {
  uint32_t n;
  const SettingRow *row = settings_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    bool again = false;
    const char *word = lines ? row[i].word : row[i].key;
    if ((row[i].kind == ROW_LINE) != (lines != 0)) continue;
    for (uint32_t k = 0; k < i; k++) {
      const char *other = lines ? row[k].word : row[k].key;
      again |= (row[k].kind == ROW_LINE) == (lines != 0) && !strcmp(other, word);
    }
    if (!again) sink(word, data);
  }
}

enum {
  ITEMS = 1 << KEYWORD_ITEM | 1 << KEYWORD_BLOCK,
  LINES = 1 << KEYWORD_LINE,
  PARTS = 1 << KEYWORD_PART,
  WORDS = 1 << KEYWORD_WORD,
  LAYERS = 1 << SECTION_LAYER,
  FUNCTIONS = (1 << SECTION_COUNT) - 1 - LAYERS
};

static void put_separated(const char *word, void *separator) {
  const char **s = separator;
  printf("%s%s", s[0], word);
  s[0] = s[1];
}

/* a|b|c */
#define PUT_ALTERNATIVES(each, which, between)                                                     \
  do {                                                                                             \
    const char *s_[] = {"", between};                                                              \
    each(which, put_separated, s_);                                                                \
  } while (0)

/* ---- TextMate: editors/shardc.tmLanguage.json ---- */

static void put_match(const char *key, const char *scope, const char *before, const char *after,
                      const char *end) {
  printf("    \"%s\": {\"name\": \"%s.shard\", \"match\": \"%s%s\"}%s\n", key, scope, before, after,
         end);
}

static void put_word_match(const char *key, const char *scope, const char *after,
                           void each(unsigned, WordSink *, void *), unsigned which) {
  printf("    \"%s\": {\"name\": \"%s.shard\", \"match\": \"\\\\b(", key, scope);
  PUT_ALTERNATIVES(each, which, "|");
  printf(")\\\\b%s\"},\n", after);
}

static void put_textmate_settings(void) {
  fputs("    \"settings\": {\n      \"begin\": \"\\\\b(", stdout);
  PUT_ALTERNATIVES(each_keyword, 1 << KEYWORD_BLOCK, "|");
  puts(")\\\\s+(\\\\w+)(?=[^{\\\\n]*\\\\{)\",\n"
       "      \"beginCaptures\": {\"1\": {\"name\": \"keyword.declaration.shard\"}, \"2\": "
       "{\"name\": \"entity.name.type.shard\"}},\n"
       "      \"end\": \"\\\\}\",\n      \"patterns\": [");
  fputs("        {\"match\": \"(?:^|[{;])\\\\s*(", stdout);
  PUT_ALTERNATIVES(each_setting, true, "|");
  puts(")\\\\b(?!\\\\.)\", \"captures\": {\"1\": {\"name\": "
       "\"support.type.property-name.shard\"}}},\n"
       "        {\"name\": \"variable.parameter.shard\", \"match\": \"\\\\b\\\\w+(?=\\\\s*=)\"},\n"
       "        {\"include\": \"#comment\"}, {\"include\": \"#string\"}, {\"include\": "
       "\"#number\"}, {\"include\": \"#word\"}, {\"include\": \"#operator\"}\n"
       "      ]\n    },");
}

void put_textmate(void) {
  puts("{\n  \"name\": \"shard\",\n  \"scopeName\": \"source.shard\",\n  \"fileTypes\": "
       "[\"shard\"],\n"
       "  \"comment\": \"Made from the tables of frontend/; change those, not this file.\",\n"
       "  \"patterns\": [\n    {\"include\": \"#comment\"}, {\"include\": \"#string\"}, "
       "{\"include\": \"#settings\"}, {\"include\": \"#declaration\"},\n"
       "    {\"include\": \"#item\"}, {\"include\": \"#line\"}, {\"include\": \"#part\"}, "
       "{\"include\": \"#attribute\"}, {\"include\": \"#layer\"},\n"
       "    {\"include\": \"#function\"}, {\"include\": \"#word\"}, {\"include\": \"#number\"}, "
       "{\"include\": \"#operator\"}\n  ],\n"
       "  \"repository\": {");
  put_match("comment", "comment.line.number-sign", "#.*$", "", ",");
  put_match("string", "string.quoted.double", "\\\"[^\\\"\\\\n]*\\\"", "", ",");
  put_match("number", "constant.numeric", "(?<![\\\\w.])\\\\d+(\\\\.\\\\d+)?([eE][+-]?\\\\d+)?",
            "([A-Za-z%]+(/s)?)?", ",");
  put_textmate_settings();
  fputs("    \"declaration\": {\"match\": \"\\\\b(", stdout);
  PUT_ALTERNATIVES(each_keyword, ITEMS, "|");
  puts(")\\\\s+([A-Za-z_]\\\\w*)\", \"captures\": {\"1\": {\"name\": "
       "\"keyword.declaration.shard\"}, \"2\": {\"name\": \"entity.name.type.shard\"}}},");
  put_word_match("item", "keyword.declaration", "", each_keyword, ITEMS);
  put_word_match("line", "keyword.control", "(?!')", each_keyword, LINES);
  put_word_match("part", "keyword.other", "(?!')", each_keyword, PARTS);
  put_match("attribute", "storage.modifier", "@\\\\w+", "", ",");
  put_word_match("layer", "support.class", "", each_operator, LAYERS);
  put_word_match("function", "support.function", "(?=\\\\s*[\\\\[(]|\\\\s*$)", each_operator,
                 FUNCTIONS);
  put_word_match("word", "constant.language", "", each_keyword, WORDS);
  put_match("operator", "keyword.operator", "\\\\|>|->|<-|[<>=!]=|[-+*/^|&<>=~]", "", "");
  puts("  }\n}");
}

/* ---- Vim: editors/vim/syntax/shard.vim ---- */

static void put_vim_words(const char *group, void each(unsigned, WordSink *, void *),
                          unsigned which) {
  printf("syn keyword %s ", group);
  PUT_ALTERNATIVES(each, which, " ");
  putchar('\n');
}

void put_vim(void) {
  puts("\" Vim syntax file for .shard files.\n"
       "\" Made from the tables of frontend/; change those, not this file.\n"
       "if exists('b:current_syntax')\n  finish\nendif\nsyn iskeyword @,48-57,_,39");
  put_vim_words("shardItem", each_keyword, 1 << KEYWORD_ITEM);
  put_vim_words("shardLine", each_keyword, LINES);
  put_vim_words("shardPart", each_keyword, PARTS);
  put_vim_words("shardWord", each_keyword, WORDS);
  put_vim_words("shardLayer", each_operator, LAYERS);
  fputs("syn match shardFunction /\\<\\(", stdout);
  PUT_ALTERNATIVES(each_operator, FUNCTIONS, "\\|");
  fputs("\\)\\>\\ze\\s*\\([[(]\\|$\\)/\nsyn match shardSetting /\\(^\\|[{;]\\)\\s*\\zs\\(", stdout);
  PUT_ALTERNATIVES(each_setting, true, "\\|");
  fputs("\\)\\>\\.\\@!/ contained\nsyn region shardSettings matchgroup=shardItem start=/\\<\\(",
        stdout);
  PUT_ALTERNATIVES(each_keyword, 1 << KEYWORD_BLOCK, "\\|");
  puts("\\)\\>\\ze[^{]*{/ end=/}/ "
       "contains=shardSetting,shardComment,shardString,shardNumber,shardWord,shardOperator\n"
       "syn match shardAttribute /@\\w\\+/\n"
       "syn match shardOperator /|>\\|->\\|<-\\|[<>=!]=\\|[-+*\\/^|&<>=~]/\n"
       "syn match shardNumber "
       "/\\<\\d\\+\\(\\.\\d\\+\\)\\?\\([eE][+-]\\?\\d\\+\\)\\?\\([A-Za-z%]\\+\\(\\/s\\)\\?\\)\\?/\n"
       "syn region shardString start=/\"/ end=/\"/ oneline\n"
       "syn match shardComment /#.*$/\n"
       "hi def link shardItem Structure\nhi def link shardLine Statement\nhi def link shardPart "
       "Keyword\n"
       "hi def link shardWord Constant\nhi def link shardLayer Type\nhi def link shardFunction "
       "Function\n"
       "hi def link shardSetting Identifier\nhi def link shardAttribute PreProc\nhi def link "
       "shardOperator Operator\n"
       "hi def link shardNumber Number\nhi def link shardString String\nhi def link shardComment "
       "Comment\n"
       "let b:current_syntax = 'shard'");
}

/* ---- libFuzzer: tests/fuzz/run_front.sh ---- */

static void put_entry(const char *word, void *data) {
  (void)data;
  printf("\"%s\"\n", word);
}

void put_dictionary(void) {
  static const char *const marks[] = {"->",      "<-",          "|>",      ".*",        "..",
                                      "<=",      ">=",          "==",      "!=",        "~",
                                      "@f32",    "@nodecay",    "@frozen", "[*]",       " as ",
                                      "h[0..5]", "25MiB",       "300GB/s", "312TFLOPS", "20%",
                                      "1e-3",    "\\\"std\\\"", "\\x0a",   "# "};
  each_keyword(ITEMS | LINES | PARTS | WORDS, put_entry, NULL);
  each_operator(LAYERS | FUNCTIONS, put_entry, NULL);
  each_setting(true, put_entry, NULL);
  each_setting(false, put_entry, NULL);
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) put_entry(marks[i], NULL);
}
