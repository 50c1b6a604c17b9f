# Turns a text file into C: cmake -DIN=NAME.shard -DOUT=NAME_shard.c -P embed.cmake
# The function's name is the file's, with `_text` behind it: NAME_shard_text.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes
  "${bytes}")
get_filename_component(name ${IN} NAME)
string(REPLACE "." "_" name ${name})
file(WRITE ${OUT} "/* Made from ${name} by embed.cmake. */
#include \"frontend/syntax/ast.h\"
static const unsigned char bytes[] = {
${bytes}0};
const char *${name}_text(size_t *n) {
  *n = sizeof bytes - 1;
  return (const char *)bytes;
}
")
