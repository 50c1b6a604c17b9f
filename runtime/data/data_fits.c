/* Files against what the model takes of them: shapes and types of columns and tokens, and whether a
   format that nobody named can be the right one for this vocabulary. Must not: read the numbers
   (files may be huge). */
#include "data.h"
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
  if (array->rank ? n && array->count / n == numbers : array->count % numbers == 0) return true;
  rt_fault(f, 205, "a sample of input %s has %lld numbers, the file has %lld in all%s%lld",
           input->name, (long long)numbers, (long long)array->count,
           n ? ", rows of " : ", remainder ",
           (long long)(n ? array->count / n : array->count % numbers));
  return rt_at(f, file->path, "", -1);
}

bool rt_columns_fit(const Stream *stream, const rt_tensor *input, Fault *f) {
  for (int i = 0; i < stream->nparts; i++)
    if (!column_said(&stream->part[i], input, f) ||
        !column_rows(&stream->part[i], stream->stride, input, f))
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
