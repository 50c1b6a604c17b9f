/* The verifier: values in two memories, and the parts of stacks in each of them. */
#include "broken.h"

#define EXP "kernel @k(%0 : host f32[A:4]) {\n%1 = exp %0 : host f32[A:4]\nreturn %1\n}\n"
/* A copy to the frame of the host, from it to a state, and an upload. */
#define UPDATE(down, done)                                                                         \
  "memory\nstate @s : host f32[A:4] at(0)\nparam @p : f32[A:4] at(0)\n" EXP                        \
  "entry @e {host_frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"                 \
  "%1 = move %0 : host f32[A:4] {0: at(" down ")}\n"                                               \
  "%2 = kernel @k, %1 : host f32[A:4] {0: at(" done ")}\nstore @s, %2\n}\n"

/* Two parts of a stack of five layers. */
#define PARTS(first, second, name)                                                                 \
  "ranges\ndim L = 5\ndim L_0 = 2 of L from " first "\ndim L_1 = " second "\n"                     \
  "param @h.0_1.*.w : f32[L_0:2, A:4]\nparam @h." name ".*.w : f32[L_1:3, A:4]\n"

static const Broken modules[] = {
    {"layers-c1", "E1105", PARTS("4", "3 of L from 2", "2_4")},
    {"layers-c1", "E1105", PARTS("0", "3 of M from 2", "2_4")},
    {"layers-c1", "E1105", PARTS("0", "3 of L_0 from 0", "2_4")},
    {"layers-c2", "E1105", PARTS("0", "3 of L from 1", "2_4")},
    {"layers-c2", "E1105", PARTS("0", "3 of L from 2", "1_3")},
    {"layers-c3", "E1105", PARTS("0", "3 of L from 1", "1_3")},
    {"layers-c3", "E1105",
     "ranges\ndim L = 5\ndim L_0 = 2 of L from 0\nparam @h.0_1.*.w : f32[L_0:2, A:4]\n"},
    {"tier-c1", "E1102",
     "offload\nbody @b(%0 : f32[A:4], %1 : host f32[A:4]) {\n%2 = add %0, %1 : host f32[A:4]\n}\n"},
    {"type-c3", "E1102", "offload\nbody @b(%0 : host f32[A:4]) {\n%1 = exp %0 : f32[A:4]\n}\n"},
    {"global-c2", "E1105",
     "offload\nstate @s : host f32[A:4]\nparam @p : f32[A:4]\nentry @e {\n%0 = load @p : f32[A:4]\n"
     "store @s, %0\n}\n"},
    {"call-c3", "E1104",
     "fuse\n" EXP "body @b(%0 : f32[A:4]) {\n%1 = kernel @k, %0 : host f32[A:4]\n}\n"},
    {"tier-c2", "E1104",
     "fuse\nkernel @k(%0 : f32[A:4], %1 : host f32[A:4]) {\n%2 = exp %0 : f32[A:4]\n"
     "%3 = exp %1 : host f32[A:4]\nreturn %2, %3\n}\n"},
    {"tier-c3", "E1109",
     "clean\nmesh x = 2\nbody @b(%0 : host f32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ranks = "
     "2} "
     ": host f32[A:4]\n}\n"},
    {"tier-c4", "E1105", "offload\ninput @x : host f32[A:4]\n"},
    {"tier-c5", "E1108", UPDATE("global @p + 0", "global @s + 0")},
    {"tier-c6", "E1104",
     "select\ntarget {device = gpu, ..}\n" EXP "body @b(%0 : host f32[A:4]) {\n"
     "%1 = kernel @k, %0 : host f32[A:4]\n}\n"},
    {"tier-c7", "E1109",
     "offload\nbody @b(%0 : host f32[A:4], %1 : host f32[A:4]) {\n%2 = dot[A] %0, %1 : host "
     "f32[]\n}\n"},
    {"token-c1", "E1103",
     "offload\nbody @b(%0 : f32[A:4]) {\n%1 = move %0 {runs_on = \"up\"} : host f32[A:4]\n}\n"},
    {"token-c1", "E1103",
     "offload\nbody @b(%0 : f32[A:4]) {\n%1 = move %0 {runs_on = \"left\"} : host f32[A:4]\n}\n"},
    {"token-c2", "E1103",
     "offload\nbody @b(%0 : f32[A:4]) {\n%1 = move %0 {runs_on = \"down\", after_up = [1, 2, 3, 4, "
     "5, 6]} "
     ": host f32[A:4]\n}\n"},
    {"token-c3", "E1103",
     "offload\nbody @b(%0 : f32[A:4]) {\n%1 = move %0 {after_up = [0]} : host f32[A:4]\n}\n"},
    {"token-c3", "E1103",
     "offload\nbody @b(%0 : f32[A:4]) {\n%1 = move %0 {runs_on = \"down\", after_down = [0]} : "
     "host "
     "f32[A:4]\n}\n"},
    {"target-c4", "E1103", "select\nbeside x86_64_v3 {..}\n"},
    {"target-c4", "E1103", "select\ntarget {device = gpu, ..}\nbeside sm_80 {device = gpu, ..}\n"},
    {"move-c1", "E1102",
     "offload\nbody @b(%0 : host f32[A:4]) {\n%1 = move %0 : host f32[A:4]\n}\n"},
    {"frame-c1", "E1108",
     "memory\nkernel @k(%0 : host f32[A:4]) {workspace = 64} {\n%1 = exp %0 : host "
     "f32[A:4]\nreturn "
     "%1\n}\nbody @b(%0 : host f32[A:4] {at(arg 0 + 0)}) {frame = 64} {\n%1 = kernel @k, %0 "
     "{host_at = 0} : host f32[A:4] {0: at(result 0 + 0)}\nreturn %1\n}\n"},
    {"place-c5", "E1108",
     "memory\n" EXP
     "body @b(%0 : host f32[A:4] {at(arg 0 + 0)}) {frame = 64} {\n%1 = kernel @k, %0 "
     ": host f32[A:4] {0: at(frame + 0)}\n}\n"},
};

/* Right modules, near the broken ones: a number of the program is anywhere, and the frames of two
   memories begin at the same offset. */
static const char *const sound[] = {
    PARTS("0", "3 of L from 2", "2_4"),
    UPDATE("frame + 0", "global @s + 0"),
    "offload\nbody @b(%0 : host f32[A:4]) {\n%1 = const {value = 2} : f32[]\n"
    "%2 = mul %0, %1 : host f32[A:4]\n%3 = move %2 : f32[A:4]\n}\n",
    "memory\nstate @s : host f32[A:4] at(0)\nstate @t : f32[A:4] at(0)\n",
    "select\ntarget {device = gpu, ..}\nparam @p : host f32[A:4]\nentry @e {\n"
    "%0 = load @p : host f32[A:4]\n%1 = move %0 : f32[A:4]\n}\n",
    "fuse\ntarget {device = gpu, ..}\nbeside x86_64_v3 {..}\n" EXP,
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}
