/* Where an export may write. Weights never replace weights of another origin, which may be the only
   copy: a directory is taken if it is empty, or if its weights are marked as written by an export
   and all other files have names of an export. A replaced file is a new one (it is renamed into its
   place), so those of the earlier export that remain are known by their inodes. Must not: remove a
   file before its successor is complete. */
#include "export_folder.h"
#include "runtime/base/file.h"
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const SafePair rt_export_marks[2] = {{"format", "pt"}, {"made_by", "shardc export"}};

static const char *const names[EXPORT_FILES] = {"model.safetensors",
                                                "adapter_model.safetensors",
                                                "config.json",
                                                "adapter_config.json",
                                                "tokenizer.json",
                                                "vocab.json",
                                                "vocab.txt",
                                                "merges.txt",
                                                "tokenizer_config.json",
                                                "special_tokens_map.json",
                                                "generation_config.json",
                                                NULL};

static uint64_t inode_of(const char *path) {
  struct stat s;
  return !lstat(path, &s) && S_ISREG(s.st_mode) ? s.st_ino : 0;
}

static bool is_marked(const char *path) {
  Fault f = {0};
  Bytes bytes;
  SafeFile file;
  if (!rt_map_file(path, 301, &bytes, &f)) return false;
  bool read = rt_safe_read(bytes, &file, &f);
  const char *by = read ? rt_safe_meta(&file, rt_export_marks[1].key) : NULL;
  bool marked = by && !strcmp(by, rt_export_marks[1].value);
  if (read) rt_safe_free(&file);
  rt_unmap_file(&bytes);
  return marked;
}

/* Is the file one of an export? Weights are if they say so, others by their names. */
static bool is_own(ExportFolder *folder, const char *name, const char *path) {
  for (int i = 0; names[i]; i++) {
    if (strcmp(names[i], name)) continue;
    folder->inode[i] = inode_of(path);
    return folder->inode[i] && (!rt_text_ends(name, ".safetensors") || is_marked(path));
  }
  return false;
}

/* The first file that no export has written; "": there is none. */
static void find_other(ExportFolder *folder, char found[RT_PATH]) {
  char at[RT_PATH];
  DIR *d = opendir(folder->path);
  *found = 0;
  for (struct dirent *e; d && !*found && (e = readdir(d));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    rt_join(at, folder->path, e->d_name);
    if (!is_own(folder, e->d_name, at)) memcpy(found, at, RT_PATH);
  }
  if (d) closedir(d);
  if (*found) return;
  if (folder->inode[0] || folder->inode[1]) return; /* weights of an export */
  for (int i = 0; names[i] && !*found; i++)
    if (folder->inode[i]) rt_join(found, folder->path, names[i]);
}

static bool reads_from(const char *folder, const char *init) {
  char above[RT_PATH];
  const char *slash = strrchr(init, '/');
  snprintf(above, sizeof above, "%.*s", slash ? (int)(slash - init + 1) : 1, slash ? init : ".");
  return rt_exists(folder) && rt_exists(init) &&
         (rt_same_file(folder, init) || (!rt_is_folder(init) && rt_same_file(folder, above)));
}

bool rt_export_folder(ExportFolder *folder, const char *path, const char *init, Fault *f) {
  char found[RT_PATH];
  *folder = (ExportFolder){.path = path};
  if (init && reads_from(path, init)) {
    rt_fault(f, 402, "--out is where to write, and --init reads from it");
    rt_at(f, path, "", -1);
    return rt_help(f, "another --out");
  }
  find_other(folder, found);
  if (!*found) return true;
  rt_fault(f, 402, "--out is where to write, and this file is not of an earlier export");
  rt_at(f, found, "", -1);
  return rt_help(f, "another --out, or remove what is in the directory first");
}

void rt_export_tidy(const ExportFolder *folder) {
  char at[RT_PATH];
  for (int i = 0; names[i]; i++) {
    rt_join(at, folder->path, names[i]);
    if (folder->inode[i] && folder->inode[i] == inode_of(at)) unlink(at);
  }
}
