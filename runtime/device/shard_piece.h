/* Logical tensors and the parts of them that ranks hold. A rank's part is one or more pieces: a box
   of the logical tensor (what the splits leave), and in it a range of elements (all of them, or
   what a flat group's shard holds). */
#ifndef SHARDC_RT_SHARD_PIECE_H
#define SHARDC_RT_SHARD_PIECE_H
#include "device.h"

typedef struct Piece {
  const rt_tensor *in;                          /* the tensor, or a part of its layers */
  int rank;                                     /* of the tensor: number of dims */
  int64_t begin[RT_MAX_RANK], end[RT_MAX_RANK]; /* the box, in the logical tensor */
  int64_t from, to;                             /* elements of the box, in its own order */
  int64_t at; /* position of element `from`, in elements from the data of `in` */
} Piece;

typedef struct PieceWalk { /* over the pieces that a rank holds of a tensor */
  const rt_program *p;
  const rt_tensor *t; /* or the part of it that is walked over */
  int rank;
  int64_t chunk, round, bucket; /* rounds of the chunk */
} PieceWalk;

PieceWalk rt_pieces(const rt_program *p, const rt_tensor *t, int rank);
bool rt_piece_next(PieceWalk *w, Piece *piece);
Piece rt_piece_whole(const rt_program *p, const rt_tensor *t); /* the logical tensor */
int64_t rt_piece_count(const Piece *b);                        /* elements of the box */
/* The piece without padding: the same elements in the same order, but for those. */
Piece rt_piece_logical(const rt_program *p, const rt_tensor *t, const Piece *b);
/* Takes up to n elements off the front of a piece; false: it has none. */
bool rt_piece_cut(Piece *left, int64_t n, Piece *front);
bool rt_piece_apart(const Piece *a, const Piece *b); /* have they no element in common? */
/* Copies the intersection of two pieces. `from` and `to` point to their first elements. */
void rt_piece_copy(int from_elem, const void *from, const Piece *source, int to_elem, void *to,
                   const Piece *target);

bool rt_is_placed(const rt_tensor *t); /* what a rank holds is not the logical tensor */
int64_t rt_whole_size(const rt_program *p, const rt_tensor *t, int dim);
int64_t rt_whole_count(const rt_program *p, const rt_tensor *t);
/* The program as one rank would have it: tensors of logical size. p itself if nothing is split
   or padded. */
const rt_program *rt_whole_program(const rt_program *p);
void rt_whole_free(const rt_program *whole, const rt_program *p);
/* Is this rank the one that writes the tensor, among the ranks that hold the same data? */
bool rt_is_writer(const rt_program *p, const rt_tensor *t, int rank);

/* Between a dense logical tensor and what this rank holds of it. Gathering is a call of all ranks.
 */
void rt_tensor_keep(const Device *d, const rt_tensor *t, int elem, const void *whole);
/* The same of a piece of the logical tensor. */
void rt_tensor_take(const Device *d, const rt_tensor *t, int elem, const void *data,
                    const Piece *from);
void rt_tensor_gather(const Device *d, const rt_tensor *t, void *whole);
/* A device on which `t`, a tensor of the logical program, is whole at `data`: for code that does
   not handle ranks. */
Device rt_device_with(const Device *d, const rt_program *whole, const rt_tensor *t, void *data);
#endif
