/* Files. A written file appears under its name only when it is complete: temporary name, sync,
   rename. A failed write removes its temporary file and reports the reason; the old content
   stays. */
#include "file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static bool cannot(Fault *f, int code, const char *verb, const char *path) {
  int why = errno;
  rt_fault(f, code, "cannot %s: %s", verb, strerror(why));
  if (why == ENOSPC || why == EDQUOT)
    rt_help(f, "free some space on that disk; `train --resume` continues a run");
  return rt_at(f, path, "", -1);
}

bool rt_map_file(const char *path, int code, Bytes *bytes, Fault *f) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *bytes = (Bytes){0};
  if (fd < 0) return cannot(f, code, "open", path);
  if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
    close(fd);
    rt_fault(f, code, "not a plain file");
    return rt_at(f, path, "", -1);
  }
  void *map =
      status.st_size ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  if (map == MAP_FAILED) {
    cannot(f, code, "map", path);
    close(fd);
    return false;
  }
  close(fd);
  *bytes = (Bytes){map, status.st_size};
  return true;
}

void rt_unmap_file(Bytes *bytes) {
  if (bytes->at) munmap((void *)bytes->at, (size_t)bytes->n);
  *bytes = (Bytes){0};
}

bool rt_exists(const char *path) { return access(path, F_OK) == 0; }

bool rt_is_folder(const char *path) {
  struct stat status;
  return !stat(path, &status) && S_ISDIR(status.st_mode);
}

bool rt_same_file(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool rt_write_all(int fd, const void *data, int64_t n, Fault *f) {
  for (const char *p = data; n > 0;) {
    ssize_t k = write(fd, p, n < 1 << 30 ? (size_t)n : 1 << 30);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return cannot(f, 403, "write", "");
    p += k, n -= k;
  }
  return true;
}

static bool sync_parent(const char *path, Fault *f) {
  char parent[RT_PATH];
  const char *slash = strrchr(path, '/');
  snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  return rt_sync_folder(*parent ? parent : "/", f);
}

/* A new folder survives a crash: its name is synced to disk. */
bool rt_make_folders(const char *path, Fault *f) {
  char part[RT_PATH];
  snprintf(part, sizeof part, "%s", path);
  for (char *p = part + 1;; p++) {
    if (*p && *p != '/') continue;
    char c = *p;
    *p = 0;
    bool made = !mkdir(part, 0777);
    if (!made && errno != EEXIST) return cannot(f, 401, "make the directory", part);
    if (made && !sync_parent(part, f)) return false;
    if (!(*p = c)) break;
  }
  if (rt_is_folder(path)) return true;
  rt_fault(f, 401, "this is not a directory");
  return rt_at(f, path, "", -1);
}

bool rt_sync_folder(const char *path, Fault *f) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return cannot(f, 403, "open", path);
  bool ok = !fsync(fd) || errno == EINVAL;
  if (!ok) cannot(f, 403, "write", path);
  close(fd);
  return ok;
}

/* ---- files that are written ---- */

static bool in_place(const char *path) {
  struct stat status;
  return !lstat(path, &status) && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/* O_EXCL and a random name: no process that can write the folder puts a link in the way. */
static int make(NewFile *file, int mode) {
  const char *slash = strrchr(file->path, '/');
  for (int i = 0; i < 100; i++) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return -1;
    snprintf(file->part, sizeof file->part, "%.*sshardc-%016llx.tmp",
             slash ? (int)(slash - file->path) + 1 : 0, file->path, (unsigned long long)number);
    int fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

bool rt_file_begin(NewFile *file, const char *path, int mode, Fault *f) {
  file->path = path, file->part[0] = 0;
  file->fd = in_place(path) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
                            : make(file, mode);
  return file->fd >= 0 || cannot(f, 401, "make", path);
}

bool rt_file_possible(const char *path, Fault *f) {
  NewFile file;
  if (in_place(path)) return true;
  if (rt_is_folder(path)) return errno = EISDIR, cannot(f, 401, "make", path);
  if (!rt_file_begin(&file, path, 0666, f)) return false;
  close(file.fd);
  unlink(file.part);
  return true;
}

bool rt_file_end(NewFile *file, bool ok, bool sync, Fault *f) {
  if (ok && sync && fsync(file->fd) && errno != EINVAL) ok = cannot(f, 403, "write", file->path);
  if (close(file->fd) && ok) ok = cannot(f, 403, "write", file->path);
  if (ok && file->part[0] && rename(file->part, file->path))
    ok = cannot(f, 403, "rename to", file->path);
  if (!ok && file->part[0]) unlink(file->part);
  return ok || rt_at(f, file->path, "", -1);
}

bool rt_write_file(const char *path, const void *data, int64_t n, bool sync, Fault *f) {
  NewFile file;
  return rt_file_begin(&file, path, 0666, f) &&
         rt_file_end(&file, rt_write_all(file.fd, data, n, f), sync, f);
}

/* Removes only the link if the path is a symbolic link. */
void rt_remove_tree(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  for (struct dirent *e; d && (e = readdir(d));)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      unlinkat(fd, e->d_name, 0); /* checkpoints hold no folders */
  if (d) closedir(d);
  if (rmdir(path) && errno == ENOTDIR) unlink(path);
}

void rt_say(FILE *file, const char *format, ...) {
  va_list a, b;
  va_start(a, format);
  va_copy(b, a);
  size_t n = (size_t)vsnprintf(NULL, 0, format, a) + 1;
  char *text = rt_alloc(n);
  vsnprintf(text, n, format, b);
  va_end(a), va_end(b);
  fputs(rt_show(text), file);
  free(text);
}

void rt_json_write(FILE *file, const char *text) {
  fputc('"', file);
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p == '"' || *p == '\\') fprintf(file, "\\%c", *p);
    else if (*p < 32) fprintf(file, "\\u%04x", *p);
    else fputc(*p, file);
  }
  fputc('"', file);
}

void rt_json_real(FILE *file, double v) {
  char text[32];
  if (!isfinite(v)) {
    fputs("null", file);
    return;
  }
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    double back = strtod(text, NULL);
    if (back == v || (digits >= 9 && (float)back == (float)v && (double)(float)v == v)) break;
  }
  fputs(text, file);
}
