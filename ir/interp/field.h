/* Exact arithmetic for the interpreter: numbers are elements of the prime field of 2^51 - 129
   elements, drawn at random. Two programs that compute the same polynomial agree in every bit,
   whatever the order of their sums; two others agree only by chance (Schwartz, 1980; Zippel, 1979):
   with a chance of d / 2^51 for polynomials of degree d.

   An element is kept in a double, as the whole number that it is. Infinities and NaN are no
   elements; ops on them follow the rules of doubles. A constant is the rational number that its
   double is, m 2^e, so scales are exact as well. A function that is no polynomial maps each element
   to a fixed random one; 0 and 1 keep their images where these are whole numbers. Comparisons use a
   fixed random order, in which the numbers that f32 holds are in their own order, since passes
   compare constants, and all others anywhere between them; its ends are the infinities. */
#ifndef SHARDC_FIELD_H
#define SHARDC_FIELD_H
#include <stdbool.h>
#include <stdint.h>

double field_of(double x);                      /* of a real number */
double field_random(uint64_t seed, uint64_t i); /* element i of a sequence */
double field_add(double a, double b);
double field_sub(double a, double b);
double field_mul(double a, double b);
double field_div(double a, double b); /* by 0: as doubles do */
double field_power(double a, int64_t n);
/* A random function of x, one for each number `which`; real: its value in reals. */
double field_function(uint64_t which, double x, double (*real)(double));
bool field_less(double a, double b);
/* The logarithm of an element, of a row of attention: no element, and only for exp and differences,
   which know the law of its kind (interp_elem.c). */
double field_log(double x);
bool field_is_log(double x);
double field_unlog(double log); /* x again */
double field_sign(double a);    /* 0, 1 or -1: of a and -a the larger one is positive */

/* A sum of products, reduced once at its end. */
typedef struct FieldSum {
  unsigned __int128 products;
  double others; /* terms that are no elements */
} FieldSum;

void field_sum_add(FieldSum *sum, double a, double b); /* sum += a b */
double field_sum(const FieldSum *sum);

#endif
