/* For wasmtime's one C file, which is compiled without a C library: the file uses only NULL of this header. */
#include <stddef.h>
