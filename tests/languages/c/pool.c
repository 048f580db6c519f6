/* pool: an IPAM plugin in C. It leases one address of the network ipam.subnet.

   The host keeps the leases, and releases them if an ADD fails. This plugin reads the configuration with a simple search; a
   real plugin has a JSON parser. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ipam_command.h"

/* Short names for types of the bindings. */
typedef postern_cni_leases_error_t host_error;
typedef postern_cni_leases_list_lease_t leases;
typedef postern_cni_leases_lease_range_t range;
typedef postern_cni_leases_list_lease_range_t set;

static char config[64 << 10];

/* Returns the text of the first key of this name up to an escape, or an empty text. */
static char *text_of(const char *key) {
  static char value[4][256];
  static int next;
  char *out = value[next++ % 4], quoted[64];
  out[0] = 0;
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  char *at = strstr(config, quoted);
  if (at == NULL || (at = strchr(at + strlen(quoted), ':')) == NULL || (at = strchr(at, '"')) == NULL) return out;
  size_t length = strcspn(++at, "\"\\");
  if (length < 256) snprintf(out, 256, "%.*s", (int)length, at);
  return out;
}

static int fail(int code, const char *message, size_t length) {
  printf("{\"cniVersion\":\"%s\",\"code\":%d,\"msg\":\"pool: ", text_of("cniVersion"), code);
  for (size_t at = 0; at < length; at++)
    if (message[at] == '"' || message[at] == '\\') printf("\\%c", message[at]);
    else if (message[at] >= ' ') putchar(message[at]);
  printf("\",\"details\":\"\"}\n");
  return 1;
}

static int refused(host_error *error) { return fail(100, (char *)error->message.ptr, error->message.len); }

static int add(void) {
  char *subnet = text_of("subnet");
  if (subnet[0] == 0) return fail(7, "ipam.subnet is missing", 22);
  range one = {.start = {.is_some = false}, .end = {.is_some = false}, .gateway = {.is_some = false}};
  ipam_command_string_set(&one.subnet, subnet);
  set ranges = {.ptr = &one, .len = 1};
  postern_cni_leases_list_list_lease_range_t sets = {.ptr = &ranges, .len = 1};
  ipam_command_list_string_t none = {.ptr = NULL, .len = 0};
  leases got;
  host_error error;
  if (!postern_cni_leases_reserve(&sets, &none, &got, &error)) return refused(&error);
  printf("{\"cniVersion\":\"%s\",\"ips\":[", text_of("cniVersion"));
  for (size_t at = 0; at < got.len; at++) {
    printf("%s{\"address\":\"%.*s\"", at ? "," : "", (int)got.ptr[at].address.len, got.ptr[at].address.ptr);
    if (got.ptr[at].gateway.is_some)
      printf(",\"gateway\":\"%.*s\"", (int)got.ptr[at].gateway.val.len, got.ptr[at].gateway.val.ptr);
    putchar('}');
  }
  printf("]}\n");
  return 0;
}

static int check(void) {
  leases held;
  host_error error;
  if (!postern_cni_leases_held(&held, &error)) return refused(&error);
  return held.len > 0 ? 0 : fail(101, "this attachment has no address", 30);
}

static int del(void) {
  host_error error;
  return postern_cni_leases_release(&error) ? 0 : refused(&error);
}

static int gc(void) {
  uint32_t count;
  host_error error;
  return postern_cni_leases_retain(&count, &error) ? 0 : refused(&error);
}

static int run(void) {
  const char *verb = getenv("CNI_COMMAND");
  size_t length = fread(config, 1, sizeof config - 1, stdin);
  if (!feof(stdin)) return fail(6, "the configuration is too long", 29);
  config[length] = 0;
  if (verb == NULL) return fail(4, "CNI_COMMAND is missing", 22);
  if (strcmp(verb, "VERSION") == 0) return puts("{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}") < 0;
  if (strcmp(verb, "ADD") == 0) return add();
  if (strcmp(verb, "CHECK") == 0) return check();
  if (strcmp(verb, "DEL") == 0) return del();
  if (strcmp(verb, "GC") == 0) return gc();
  if (strcmp(verb, "STATUS") == 0) return 0;
  return fail(4, "no such verb", 12);
}

/* The world's export `wasi:cli/run`, instead of main. */
bool exports_wasi_cli_run_run(void) {
  bool success = run() == 0;
  fflush(stdout);
  return success;
}
