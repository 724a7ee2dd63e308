// link: cuda
// flags: -Wl,-z,lazy -rdynamic
// Facts: how functions are found: dlsym with every kind of name, cuGetProcAddress with every odd
// argument.  Addresses are compared only with each other: with the library in front they are its.

#include <dlfcn.h>

#include <string>

#include "facts.h"

namespace conformance {
namespace {

constexpr unsigned long long kPoisonWord = 0xabababababab;

void* Poison() { return reinterpret_cast<void*>(kPoisonWord); }

std::string Kind(const void* address) {
  if (address == Poison()) return "untouched";
  return address == nullptr ? "null" : "found";
}

void OldEntry(Facts& facts, const char* name, int version, cuuint64_t flags,
              const std::string& label) {
  void* address = Poison();
  const CUresult code = cuGetProcAddress(name, &address, version, flags);
  facts.Text("gpa." + label, Name(code) + " " + Kind(address));
}

void NewEntry(Facts& facts, const char* name, int version, cuuint64_t flags,
              const std::string& label) {
  void* address = Poison();
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  const CUresult code = cuGetProcAddress_v2(name, &address, version, flags, &status);
  facts.Text("gpa_v2." + label,
             Name(code) + " " + Kind(address) + " status " + std::to_string(status));
}

void OddArguments(Facts& facts) {
  struct Question {
    const char* label;
    const char* name;
    int version;
    cuuint64_t flags;
  };
  constexpr Question kQuestions[] = {
      {"known", "cuMemAlloc", 12000, 0},
      {"unknown", "cuNoSuchFunction", 12000, 0},
      {"empty", "", 12000, 0},
      {"suffixed_v2", "cuMemAlloc_v2", 12000, 0},
      {"suffixed_ptsz", "cuLaunchKernel_ptsz", 12000, 2},
      {"runtime_name", "cudaMalloc", 12000, 0},
      {"debugger_name", "cudbgApiInit", 12000, 0},
      {"undocumented", "cuMemGetAttribute", 12000, 0},
      {"version_too_low", "cuMemAlloc", 1000, 0},
      {"version_zero", "cuMemAlloc", 0, 0},
      {"version_negative", "cuMemAlloc", -1, 0},
      {"version_of_13_0", "cuMemAlloc", 13000, 0},
      {"version_of_13_1", "cuMemAlloc", 13010, 0},
      {"version_99999", "cuMemAlloc", 99999, 0},
      {"flag_1", "cuLaunchKernel", 12000, 1},
      {"flag_2", "cuLaunchKernel", 12000, 2},
      {"flag_3", "cuLaunchKernel", 12000, 3},
      {"flag_4", "cuLaunchKernel", 12000, 4},
      {"flag_2_before_per_thread", "cuLaunchKernel", 6050, 2},
      {"flag_2_without_variant", "cuMemAlloc", 12000, 2},
      {"itself_11", "cuGetProcAddress", 11030, 0},
      {"itself_12", "cuGetProcAddress", 12000, 0},
      {"itself_10", "cuGetProcAddress", 10000, 0},
      {"newest", "cuMemcpyBatchAsync", 12080, 0},
      {"newest_too_early", "cuMemcpyBatchAsync", 12000, 0},
      {"later_driver", "cuLogicalEndpointCreate", 13000, 0},
  };
  for (const Question& one : kQuestions) {
    OldEntry(facts, one.name, one.version, one.flags, one.label);
    NewEntry(facts, one.name, one.version, one.flags, one.label);
  }
  void* address = Poison();
  facts.Code("gpa_v2.null_status", cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, nullptr));
  facts.Text("gpa_v2.null_status_finds", Kind(address));
}

void* Find(const char* name, int version, cuuint64_t flags) {
  void* address = nullptr;
  cuGetProcAddress_v2(name, &address, version, flags, nullptr);
  return address;
}

// What cuGetProcAddress gives is what dlsym gives for the exported name.
void Agreement(Facts& facts, void* driver) {
  struct Match {
    const char* base;
    int version;
    cuuint64_t flags;
    const char* symbol;
  };
  constexpr Match kMatches[] = {
      {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
      {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
      {"cuCtxCreate", 3010, 0, "cuCtxCreate"},
      {"cuCtxCreate", 11030, 0, "cuCtxCreate_v2"},
      {"cuCtxCreate", 12000, 0, "cuCtxCreate_v3"},
      {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
      {"cuMemcpyDtoH", 12000, 2, "cuMemcpyDtoH_v2_ptds"},
      {"cuLaunchKernel", 12000, 0, "cuLaunchKernel"},
      {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
      {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
      {"cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2"},
      {"cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"},
      {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
      {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2"},
  };
  for (const Match& one : kMatches) {
    void* exported = dlsym(driver, one.symbol);
    facts.Is(std::string("agree.") + one.base + "." + std::to_string(one.version) + "." +
                 std::to_string(one.flags),
             exported != nullptr && exported == Find(one.base, one.version, one.flags));
  }
}

void ByName(Facts& facts, void* driver) {
  constexpr const char* kNames[] = {"cuInit",
                                    "cuMemAlloc",
                                    "cuMemAlloc_v2",
                                    "cuMemAlloc_v3",
                                    "cuMemAlloc_ptsz",
                                    "cuLaunchKernel_ptsz",
                                    "cuMemcpyDtoH_v2_ptds",
                                    "cuNoSuchFunction",
                                    "cuMemGetAttribute",
                                    "cuEGLApiInit",
                                    "cudbgApiInit",
                                    "cudbgIpcFlag",
                                    "cuGetProcAddress",
                                    "cuGetProcAddress_v2",
                                    "cuLogicalEndpointCreate",
                                    "nvmlInit_v2",
                                    "cuStreamWaitValue32",
                                    "cuEventCreateFromEGLSync"};
  for (const char* name : kNames) {
    facts.Text(std::string("dlsym.") + name, Kind(dlsym(driver, name)));
  }
  dlerror();
  dlsym(driver, "cuNoSuchFunction");
  facts.Is("dlsym.miss_sets_dlerror", dlerror() != nullptr);
  dlsym(driver, "cuInit");
  facts.Is("dlsym.hit_leaves_no_dlerror", dlerror() == nullptr);
  facts.Text("dlvsym.cuInit", Kind(dlvsym(driver, "cuInit", "GLIBC_2.2.5")));
  facts.Is("dlsym.default_is_the_linked_one",
           dlsym(RTLD_DEFAULT, "cuInit") == reinterpret_cast<void*>(&cuInit));
  facts.Is("dlsym.handle_is_the_linked_one",
           dlsym(driver, "cuInit") == reinterpret_cast<void*>(&cuInit));
  void* again = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  facts.Is("dlopen.same_handle_again", again == driver);
  facts.Is("dlsym.other_names_work", dlsym(RTLD_DEFAULT, "strlen") != nullptr);
  facts.Text("dlsym.strange_cu_name", Kind(dlsym(RTLD_DEFAULT, "curl_easy_init")));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("lookups");
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  facts.Is("dlopen", driver != nullptr);
  ByName(facts, driver);
  OddArguments(facts);
  Agreement(facts, driver);
  return 0;
}
