// flags: -D_GNU_SOURCE
// What cuGetProcAddress answers: for every name in a file, both entry points, every flag and
// version.
//
//   lookup_table NAMES [LIBRARY]     NAMES: one a line; LIBRARY: default libcuda.so.1
//
// Needs no GPU and no cuInit. Tab-separated lines:
//   driver    CUDA_VERSION
//   lookup    ENTRY  NAME  FLAGS  VERSION=ANSWER ...
// ENTRY is 1 (four arguments) or 2 (five). A VERSION stands there only where the answer changes; it
// holds until the next. ANSWER is RC/STATUS/SYMBOL, where STATUS and SYMBOL are "-" if nothing was
// written; SYMBOL is "null", or the exported name at the address, or "?" if it is none.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*GetProcAddress1)(const char*, void**, int, uint64_t);
typedef int (*GetProcAddress2)(const char*, void**, int, uint64_t, int*);

enum { kUntouched = 77, kAnswerBytes = 300 };

// Around every threshold, the ends of the range, and what no driver has.
static const int kVersions[] = {
    0,     1,     999,   1999,  2000,  2010,  2020,  3000,  3009,  3010,      3020,      4000,
    4010,  4020,  5000,  5050,  6000,  6050,  6999,  7000,  7050,  8000,      9000,      9010,
    9020,  10000, 10010, 10020, 11000, 11010, 11020, 11029, 11030, 11040,     11050,     11060,
    11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080,     12090,     12999,
    13000, 13001, 13010, 13020, 13030, 13040, 13050, 14000, 99999, INT32_MAX, INT32_MIN, -1};
static const uint64_t kFlags[] = {0, 1, 2, 3, 4, (uint64_t)1 << 32};

static char kNobody;  // no driver's pointer

static void Describe(int rc, int status, const void* pfn, char answer[kAnswerBytes]) {
  const char* symbol = "-";
  Dl_info info;
  if (pfn == NULL) {
    symbol = "null";
  } else if (pfn != &kNobody) {
    symbol = dladdr(pfn, &info) != 0 && info.dli_saddr == pfn ? info.dli_sname : "?";
  }
  char text[16] = "-";
  if (status != kUntouched) snprintf(text, sizeof(text), "%d", status);
  snprintf(answer, kAnswerBytes, "%d/%s/%s", rc, text, symbol);
}

static void Ask(void* function, int entry, const char* name, int version, uint64_t flags,
                char answer[kAnswerBytes]) {
  void* pfn = &kNobody;
  int status = kUntouched;
  const int rc = entry == 1 ? ((GetProcAddress1)function)(name, &pfn, version, flags)
                            : ((GetProcAddress2)function)(name, &pfn, version, flags, &status);
  Describe(rc, status, pfn, answer);
}

static void PrintRow(void* function, int entry, const char* name, uint64_t flags) {
  char last[kAnswerBytes] = "";
  printf("lookup\t%d\t%s\t%llu", entry, name, (unsigned long long)flags);
  for (size_t i = 0; i < sizeof(kVersions) / sizeof(kVersions[0]); ++i) {
    char answer[kAnswerBytes];
    Ask(function, entry, name, kVersions[i], flags, answer);
    if (strcmp(answer, last) != 0) printf("\t%d=%s", kVersions[i], answer);
    memcpy(last, answer, sizeof(last));
  }
  putchar('\n');
}

int main(int argc, char** argv) {
  FILE* names = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (names == NULL) {
    fprintf(stderr, "usage: lookup_table NAMES [LIBRARY]\n");
    return 2;
  }
  void* library = dlopen(argc > 2 ? argv[2] : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "lookup_table: %s\n", dlerror());
    return 1;
  }
  int (*get_version)(int*) = (int (*)(int*))dlsym(library, "cuDriverGetVersion");
  int version = -1;
  if (get_version == NULL || get_version(&version) != 0) return 1;
  printf("driver\t%d\n", version);

  void* entries[] = {dlsym(library, "cuGetProcAddress"), dlsym(library, "cuGetProcAddress_v2")};
  char name[256];
  while (fgets(name, sizeof(name), names) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    for (int entry = 1; entry <= 2; ++entry) {
      if (entries[entry - 1] == NULL) continue;
      for (size_t i = 0; i < sizeof(kFlags) / sizeof(kFlags[0]); ++i) {
        PrintRow(entries[entry - 1], entry, name, kFlags[i]);
      }
    }
  }
  return 0;
}
