/* Objects of kernels under another name (codegen/device_code.h, `named`).

   The object is of ELF64 as LLVM writes it. Symbols and sections refer to a table of strings for
   their names; the new names are added to a copy of the table at the end of the file, after the old
   ones, so nothing else of the file moves. A COMDAT group has the name of its symbol, and is
   renamed with it. Must not: touch code, or the rest of a name. */
#include "object_names.h"
#include "ir/support/diag.h"
#include <elf.h>
#include <string.h>

typedef struct ObjectNames {
  Arena *arena;
  char *file;
  Elf64_Shdr *section;
  Elf64_Shdr *table; /* of strings, of symbols and sections alike */
  char *string;      /* what it becomes */
  size_t n;
  const char *symbol;
} ObjectNames;

/* The part of a name that is the kernel's symbol, NULL: none. Sections of code are named after
   theirs. */
static const char *own_part(const char *name) {
  static const char text[] = ".text.";
  size_t neutral = strlen(NEUTRAL_SYMBOL);
  if (!strncmp(name, text, strlen(text))) name += strlen(text);
  bool own = !strncmp(name, NEUTRAL_SYMBOL, neutral) && (!name[neutral] || name[neutral] == '_');
  return own ? name : NULL;
}

/* Bytes of new names, its end with each; 0: it keeps its name. */
static size_t room_for(const ObjectNames *names, uint32_t at) {
  const char *name = names->file + names->table->sh_offset + at;
  return own_part(name) ? strlen(name) + strlen(names->symbol) + 1 : 0;
}

static void give_name(ObjectNames *names, uint32_t *at) {
  const char *name = names->file + names->table->sh_offset + *at, *own = own_part(name);
  if (!own) return;
  *at = (uint32_t)names->n;
  names->n += (size_t)sprintf(names->string + names->n, "%.*s%s%s", (int)(own - name), name,
                              names->symbol, own + strlen(NEUTRAL_SYMBOL)) +
              1;
}

static Elf64_Shdr *symbol_table(const ObjectNames *names, const Elf64_Ehdr *head) {
  for (int i = 0; i < head->e_shnum; i++)
    if (names->section[i].sh_type == SHT_SYMTAB) return &names->section[i];
  return NULL;
}

static Elf64_Sym *symbols_of(const ObjectNames *names, const Elf64_Shdr *table, size_t *n) {
  *n = table->sh_size / sizeof(Elf64_Sym);
  return (Elf64_Sym *)(void *)(names->file + table->sh_offset);
}

static void give_names(ObjectNames *names, const Elf64_Ehdr *head, const Elf64_Shdr *table) {
  size_t n, room = names->table->sh_size;
  Elf64_Sym *symbol = symbols_of(names, table, &n);
  for (size_t i = 0; i < n; i++) room += room_for(names, symbol[i].st_name);
  for (int i = 0; i < head->e_shnum; i++) room += room_for(names, names->section[i].sh_name);
  names->string = ARENA_ARRAY(names->arena, char, room);
  names->n = names->table->sh_size;
  memcpy(names->string, names->file + names->table->sh_offset, names->n);
  for (size_t i = 0; i < n; i++) give_name(names, &symbol[i].st_name);
  for (int i = 0; i < head->e_shnum; i++) give_name(names, &names->section[i].sh_name);
}

CacheBytes object_named(Arena *arena, CacheBytes code, const char *symbol) {
  ObjectNames names = {.arena = arena, .symbol = symbol, .file = ARENA_ARRAY(arena, char, code.n)};
  memcpy(names.file, code.at, code.n);
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)(void *)names.file;
  must(code.n > sizeof *head && !memcmp(head->e_ident, ELFMAG, SELFMAG) &&
           head->e_ident[EI_CLASS] == ELFCLASS64,
       "the object of %s is not of ELF64", symbol);
  names.section = (Elf64_Shdr *)(void *)(names.file + head->e_shoff);
  const Elf64_Shdr *table = symbol_table(&names, head);
  must(table && table->sh_link == head->e_shstrndx, "the object of %s has no one table of names",
       symbol);
  names.table = &names.section[table->sh_link];
  give_names(&names, head, table);
  CacheBytes made = {ARENA_ARRAY(arena, char, code.n + names.n), code.n + names.n};
  names.table->sh_offset = code.n, names.table->sh_size = names.n;
  memcpy(made.at, names.file, code.n);
  memcpy(made.at + code.n, names.string, names.n);
  return made;
}
