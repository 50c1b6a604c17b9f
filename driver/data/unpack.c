/* Unpacking by zlib and libzstd, into a temporary file without a name that is mapped: text may be
   larger than memory. Both libraries are optional when shardc is built. Must not: know what the
   text is. */
#include "unpack.h"
#include "runtime/base/file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef SHARDC_ZLIB
#include <zlib.h>
#endif
#ifdef SHARDC_ZSTD
#include <zstd.h>
#endif

enum { BLOCK = 1 << 16 };

typedef bool Unpack(Bytes from, FILE *to, Fault *f);

static bool cut_short(Fault *f, int64_t at) {
  rt_fault(f, 202, "the packed file ends early");
  return rt_at(f, "", "byte", at);
}

#ifdef SHARDC_ZLIB
static bool put(const void *data, size_t n, FILE *to, Fault *f) {
  return fwrite(data, 1, n, to) == n ||
         rt_fault(f, 201, "cannot write a temporary file: %s", strerror(errno));
}

/* gzip files may be several streams, one after the other. */
static bool unpack_gzip(Bytes from, FILE *to, Fault *f) {
  uint8_t block[BLOCK];
  z_stream z = {0};
  int64_t at = 0;
  int rc = inflateInit2(&z, 15 + 16);
  while (rc == Z_OK || (rc == Z_STREAM_END && at < from.n)) {
    if (rc == Z_STREAM_END) inflateReset(&z);
    int64_t rest = from.n - at;
    z.next_in = (Bytef *)(uintptr_t)(from.at + at);
    z.avail_in = (uInt)(rest < 1 << 30 ? rest : 1 << 30);
    z.next_out = block, z.avail_out = BLOCK;
    rc = inflate(&z, Z_NO_FLUSH);
    at = z.next_in - from.at;
    if (!put(block, (size_t)(BLOCK - z.avail_out), to, f)) rc = Z_ERRNO;
    if (rc == Z_BUF_ERROR) rc = Z_STREAM_ERROR, cut_short(f, at);
  }
  inflateEnd(&z);
  if (rc == Z_STREAM_END || f->code) return rc == Z_STREAM_END;
  rt_fault(f, 202, "the packed file is damaged");
  return rt_at(f, "", "byte", at);
}
#else
static Unpack *const unpack_gzip = NULL;
#endif

#ifdef SHARDC_ZSTD
static bool unpack_zstd(Bytes from, FILE *to, Fault *f) {
  uint8_t block[BLOCK];
  ZSTD_DStream *z = ZSTD_createDStream();
  ZSTD_inBuffer in = {from.at, (size_t)from.n, 0};
  size_t rest = 1;
  while (!f->code && (in.pos < in.size || rest)) {
    ZSTD_outBuffer out = {block, BLOCK, 0};
    size_t before = in.pos;
    rest = ZSTD_decompressStream(z, &out, &in);
    if (ZSTD_isError(rest)) {
      rt_fault(f, 202, "the packed file is damaged: %s", ZSTD_getErrorName(rest));
      rt_at(f, "", "byte", (int64_t)before);
    } else if (rest && in.pos == in.size && !out.pos) {
      cut_short(f, from.n);
    } else if (fwrite(block, 1, out.pos, to) != out.pos) {
      rt_fault(f, 201, "cannot write a temporary file: %s", strerror(errno));
    }
  }
  ZSTD_freeDStream(z);
  return !f->code;
}
#else
static Unpack *const unpack_zstd = NULL;
#endif

static bool map_unpacked(Bytes packed, Unpack *unpack, Bytes *bytes, Fault *f) {
  FILE *to = tmpfile();
  if (!to) return rt_fault(f, 201, "cannot make a temporary file: %s", strerror(errno));
  bool ok = unpack(packed, to, f);
  int64_t n = ok && !fflush(to) ? ftell(to) : -1;
  *bytes = (Bytes){0};
  if (n > 0) {
    void *at = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fileno(to), 0);
    if (at != MAP_FAILED) *bytes = (Bytes){at, n};
  }
  fclose(to);
  return ok && (n == 0 || bytes->n ||
                rt_fault(f, 201, "cannot read a temporary file: %s", strerror(errno)));
}

bool unpack_text(const char *path, Bytes *bytes, char name[RT_PATH], Fault *f) {
  static const struct {
    const char *name, *magic, *end, *library;
    Unpack *unpack;
  } rows[] = {{"gzip", "\x1f\x8b\x08", ".gz", "zlib", unpack_gzip},
              {"zstd", "\x28\xb5\x2f\xfd", ".zst", "libzstd", unpack_zstd}};
  snprintf(name, RT_PATH, "%s", path);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t n = strlen(rows[i].magic);
    if (bytes->n < (int64_t)n || memcmp(bytes->at, rows[i].magic, n)) continue;
    if (!rows[i].unpack) {
      rt_fault(f, 202, "this shardc was built without %s, which reads %s", rows[i].library,
               rows[i].name);
      return rt_help(f, "unpack it first: `%s`", i ? "unzstd" : "gunzip");
    }
    Bytes packed = *bytes;
    bool ok = map_unpacked(packed, rows[i].unpack, bytes, f);
    rt_unmap_file(&packed);
    if (rt_text_ends(name, rows[i].end)) name[strlen(name) - strlen(rows[i].end)] = 0;
    return ok;
  }
  return true;
}
