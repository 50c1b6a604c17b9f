/* Tensor maps of kernels in the host's C, which the runtime encodes for bulk copies (rt.h). Must
   not: know an address, which only a launch has. */
#include "host.h"
#include "ir/kernel/tensor_map.h"

static void put_list(HostWriter *writer, const int64_t *list, int n) {
  host_put(writer, "{");
  for (int i = 0; i < n; i++) host_put(writer, "%s%lld", i ? ", " : "", (long long)list[i]);
  host_put(writer, "}");
}

int host_maps(HostWriter *writer, const Fn *k, const char *symbol) {
  TensorMap map[KERNEL_MAPS];
  int n = kernel_maps(writer->m, k, map);
  if (n) host_put(writer, "static const rt_tensor_map %s_maps[] = {\n", symbol);
  for (int i = 0; i < n; i++) {
    host_put(writer, "    {%u, %d, %d, ", map[i].buffer, (int)elem_bytes(map[i].elem), map[i].rank);
    put_list(writer, map[i].size, map[i].rank), host_put(writer, ", ");
    put_list(writer, map[i].stride, map[i].rank), host_put(writer, ", ");
    put_list(writer, map[i].box, map[i].rank), host_put(writer, "},\n");
  }
  if (n) host_put(writer, "};\n");
  return n;
}
