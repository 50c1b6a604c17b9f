/* Files against what the model takes of them: shapes and types of columns and tokens, and whether a
   format that nobody named can be the right one for this vocabulary. Must not: read the numbers
   (files may be huge). */
#include "data.h"
#include <stdio.h>
#include <string.h>

/* ---- columns ---- */

/* Whether the file's name tells its type: u16, u32 or f32 by its end; .bin may be any of them;
   other ends mean bytes. */
static bool column_said(const DataFile *file, const rt_tensor *input, Fault *f) {
  if (!file->array.guessed || rt_text_ends(file->path, file->array.format)) return true;
  rt_fault(f, 205, "nothing says how the numbers of input %s are written in this file",
           input->name);
  rt_help(f, "`format = f32`, u16, u32, bytes in the data line, or an NPY file (`numpy.save`)");
  return rt_at(f, file->path, "", -1);
}

static bool column_rows(const DataFile *file, int64_t numbers, const rt_tensor *input, Fault *f) {
  const Array *array = &file->array;
  int64_t n = array->rank ? array->size[0] : 0;
  if (array->rank && !n)
    return rt_fault(f, 203, "the array has no rows"), rt_at(f, file->path, "", -1);
  if (array->rank ? array->count / n == numbers : array->count % numbers == 0) return true;
  rt_fault(f, 205, "a sample of input %s has %lld numbers, the file has %lld in all%s%lld",
           input->name, (long long)numbers, (long long)array->count,
           n ? ", rows of " : ", remainder ",
           (long long)(n ? array->count / n : array->count % numbers));
  return rt_at(f, file->path, "", -1);
}

/* Where the numbers of a sample are cut into dims: products of its first dims, growing, between 1
   and all. */
static int cuts_of(const int64_t *size, int rank, int64_t all, int64_t *cut) {
  int n = 0;
  int64_t before = 1;
  for (int i = 1; i < rank; i++) {
    before *= size[i];
    if (before > (n ? cut[n - 1] : 1) && before < all) cut[n++] = before;
  }
  return n;
}

static bool has_all(const int64_t *cut, int n, const int64_t *of, int nof) {
  for (int i = 0, k = 0; i < nof; i++) {
    while (k < n && cut[k] < of[i]) k++;
    if (k == n || cut[k] != of[i]) return false;
  }
  return true;
}

static void sizes_text(const int64_t *size, int rank, char text[100]) {
  size_t n = 0;
  for (int i = 1; i < rank && n < 100; i++)
    n += (size_t)snprintf(text + n, 100 - n, "%s%lld", i > 1 ? " x " : "", (long long)size[i]);
}

/* Rows may join neighbouring dims of the input, or cut them further; any other dims are those of
   an array in another order, such as images whose channels come first. */
static bool column_order(const DataFile *file, int64_t numbers, const rt_tensor *input, Fault *f) {
  int64_t own[RT_MAX_RANK], read[RT_MAX_RANK];
  int n = cuts_of(input->size, input->rank, numbers, own),
      m = cuts_of(file->array.size, file->array.rank, numbers, read);
  if (has_all(own, n, read, m) || has_all(read, m, own, n)) return true;
  char of_input[100], of_file[100];
  sizes_text(input->size, input->rank, of_input);
  sizes_text(file->array.size, file->array.rank, of_file);
  rt_fault(f, 205, "a sample of input %s is %s numbers, a row of the file is %s", input->name,
           of_input, of_file);
  rt_help(f, "`numpy.transpose` gives an array the order of the input's dimensions; "
             "`array.reshape(len(array), -1)` says that its numbers are in this order");
  return rt_at(f, file->path, "", -1);
}

bool rt_columns_fit(const Stream *stream, const rt_tensor *input, Fault *f) {
  for (int i = 0; i < stream->nparts; i++)
    if (!column_said(&stream->part[i], input, f) ||
        !column_rows(&stream->part[i], stream->stride, input, f) ||
        !column_order(&stream->part[i], stream->stride, input, f))
      return false;
  return true;
}

/* ---- tokens ---- */

/* A text is no file of tokens where a tokenizer makes the tokens, or 256 are not all there are. */
static bool text_for_words(const DataFile *file, const rt_tensor *input, const char *tokenizer,
                           Fault *f) {
  if (!tokenizer && (!input->of || input->of_size <= 256)) return true;
  if (tokenizer) rt_fault(f, 205, "bytes of a text are no tokens of %s", tokenizer);
  else
    rt_fault(f, 205, "input %s takes tokens of %s = %lld, bytes of a text are 0 to 255",
             input->name, input->of, (long long)input->of_size);
  rt_help(f,
          "`shardc data tokenize %s --tokenizer %s -o FILE.bin` makes tokens; `format = bytes` "
          "insists on bytes",
          file->path, tokenizer ? tokenizer : "TOKENIZER");
  return false;
}

static bool wide_enough(const rt_tensor *input, Fault *f) {
  if (!input->of || input->of_size <= 65536) return true;
  rt_fault(f, 205, "numbers of 16 bits are no tokens of %s = %lld", input->of,
           (long long)input->of_size);
  rt_help(f, "`format = u32` reads numbers of 32 bits; `format = u16` insists");
  return false;
}

static bool guess_fits(const DataFile *file, const rt_tensor *input, const char *tokenizer,
                       Fault *f) {
  if (!file->array.guessed) return true;
  return (file->array.width == 1   ? text_for_words(file, input, tokenizer, f)
          : file->array.width == 2 ? wide_enough(input, f)
                                   : true) ||
         rt_at(f, file->path, "", -1);
}

bool rt_tokens_fit(const Stream *stream, const rt_tensor *input, const char *tokenizer, Fault *f) {
  for (int i = 0; i < stream->nparts; i++) {
    const DataFile *file = &stream->part[i];
    const Array *array = &file->array;
    if (array->kind == NUMBER_FLOAT || array->rank > 1) {
      rt_fault(f, 202, "tokens are one sequence of whole numbers, this file holds %s",
               array->rank > 1 ? "an array of several dimensions" : "floats");
      rt_help(f, array->rank > 1 ? "`numpy.save(FILE, array.reshape(-1))` writes one sequence"
                                 : "`columns(input = FILE)` feeds floats to an input");
      return rt_at(f, file->path, "", -1);
    }
    if (!guess_fits(file, input, tokenizer, f)) return false;
  }
  return true;
}
