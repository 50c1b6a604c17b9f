/* Shared by packing a and packing b (contract_pack.c): words of k, the packing functions' type. */
#ifndef SHARDC_CONTRACT_PACK_H
#define SHARDC_CONTRACT_PACK_H
#include "contract.h"

/* Stores x, f32 or a vector of it, at element `offset`, aligned to an element. */
void contract_store_f32(Contract *c, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset);
LLVMValueRef contract_insert(Contract *c, LLVMValueRef vector, LLVMValueRef x, int i);

/* Is the last step of the inner k dim not full? */
bool contract_has_halves(const Contract *c);
/* Elements of a word, which are neighbours along k. */
int64_t contract_word_depth(const Contract *c);
/* Does the inner k dim end in a word that is not full? */
bool contract_last_half(const Contract *c);
/* Words of `length` steps that are whole. */
LLVMValueRef contract_full_words(Contract *c, LLVMValueRef length, LLVMValueRef half);

/* void (pointers, numbers) */
LLVMTypeRef contract_pack_type(Contract *c, int numbers);

#endif
