/* A strict JSON pull reader over a range of bytes. Errors are sticky: after the first, every call
   returns false.

     if (rt_json_object(&j))
       while (rt_json_member(&j, key, sizeof key))
         if (!strcmp(key, "step")) rt_json_int(&j, &step);
         else rt_json_skip(&j);
     if (!rt_json_done(&j)) .. j.error, j.p - j.begin .. */
#ifndef SHARDC_RT_JSON_H
#define SHARDC_RT_JSON_H
#include "base.h"

typedef struct Json {
  const char *p, *begin, *end, *error;
  bool first; /* nothing read yet in the innermost open object or array */
} Json;

Json rt_json(const void *text, int64_t n);
bool rt_json_object(Json *json);                         /* reads { */
bool rt_json_member(Json *json, char *key, size_t size); /* next key, or false and reads } */
bool rt_json_array(Json *json);                          /* reads [ */
bool rt_json_element(Json *json);                        /* true: a value follows; false: read ] */
bool rt_json_string(Json *json, char *out, size_t size); /* too long for out is an error */
bool rt_json_int(Json *json, int64_t *v);
bool rt_json_number(Json *json, double *v); /* null reads as NaN */
bool rt_json_bool(Json *json, bool *v);
typedef struct JsonField { /* a number of an object */
  const char *key;
  int64_t *whole;
  double *real; /* if whole is NULL */
} JsonField;
bool rt_json_field(Json *json, const char *key, size_t n, const JsonField *rows); /* one of these */
int rt_json_peek(Json *json); /* the character with which the next value begins; -1: none */
bool rt_json_skip(Json *json);
bool rt_json_done(Json *json); /* no error and nothing but space is left */
bool rt_json_fail(Json *json, const char *why);
#endif
