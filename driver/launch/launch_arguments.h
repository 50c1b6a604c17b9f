/* The arguments of the executable in a script (launch_arguments.c). */
#ifndef SHARDC_LAUNCH_ARGUMENTS_H
#define SHARDC_LAUNCH_ARGUMENTS_H
#include "runtime/base/base.h"

/* Would `train` take these words, of which argv[0] is the program? False: f says why not. *option:
   what the script gives by itself, if the words have it; else NULL. */
bool launch_arguments(int argc, char **argv, const char **option, Fault *f);
#endif
