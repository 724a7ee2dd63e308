// echo_caller.cpp: hookgen 1, templates/echo_caller.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
// Usage: echo_caller LIBRARY [SYMBOL_TO_SKIP...]
// Every call must reach exactly its own symbol of the fake driver, once, with exactly its argument
// bytes, and bring back that symbol's result. Each is made twice: through the lazy stub, then past
// it. One line per deviation on stdout; status 0 when there is none.
#include <dlfcn.h>
#include <stdio.h>

#include <utility>

#include "echo.h"

extern "C" {
EchoRecord gpufence_echo;
}

namespace {

struct Tally {
  void* library;
  char** skipped;
  uint32_t calls;
  uint32_t deviations;
};

bool IsSkipped(const Tally& tally, const char* name) {
  for (char** one = tally.skipped; *one != nullptr; ++one) {
    if (strcmp(*one, name) == 0) return true;
  }
  return false;
}

void Deviates(Tally* tally, const char* name, const char* how, const char* detail) {
  printf("%s: %s%s\n", name, how, detail);
  ++tally->deviations;
}

// True when the last call reached `sym` once with these bytes.
bool ArrivedAs(Tally* tally, uint32_t sym, const EchoRecord& expected) {
  const char* name = gpufence::kSymInfo[sym].name;
  if (gpufence_echo.calls != 1) {
    Deviates(tally, name, "reached no function of the driver, or more than one", "");
  } else if (gpufence_echo.sym != sym) {
    Deviates(tally, name, "reached ", gpufence::kSymInfo[gpufence_echo.sym].name);
  } else if (gpufence_echo.size != expected.size ||
             memcmp(gpufence_echo.bytes, expected.bytes, expected.size) != 0) {
    Deviates(tally, name, "arrived with other arguments", "");
  } else {
    return true;
  }
  return false;
}

template <typename Function>
struct Call;

template <typename Result, typename... Args>
struct Call<Result(Args...)> {
  template <unsigned... kPosition>
  static void Make(Tally* tally, uint32_t sym, Result (*function)(Args...),
                   std::integer_sequence<unsigned, kPosition...>) {
    EchoRecord expected{};
    (echo::Append(&expected, echo::Value<Args>(sym, kPosition)), ...);
    gpufence_echo = {};
    ++tally->calls;
    if constexpr (std::is_void_v<Result>) {
      function(echo::Value<Args>(sym, kPosition)...);
      ArrivedAs(tally, sym, expected);
    } else {
      const Result result = function(echo::Value<Args>(sym, kPosition)...);
      const Result wanted = echo::Value<Result>(sym, echo::kResult);
      if (ArrivedAs(tally, sym, expected) && memcmp(&result, &wanted, sizeof(result)) != 0) {
        Deviates(tally, gpufence::kSymInfo[sym].name, "brought back another result", "");
      }
    }
  }
};

template <typename Function>
struct Shape;

template <typename Result, typename... Args>
struct Shape<Result(Args...)> {
  using Positions = std::make_integer_sequence<unsigned, sizeof...(Args)>;
};

template <typename Function>
void Check(Tally* tally, uint32_t sym) {
  const char* name = gpufence::kSymInfo[sym].name;
  if (IsSkipped(*tally, name)) return;
  auto* function = reinterpret_cast<Function*>(dlsym(tally->library, name));
  if (function == nullptr) {
    Deviates(tally, name, "is not exported", "");
    return;
  }
  for (int round = 0; round < 2; ++round) {
    Call<Function>::Make(tally, sym, function, typename Shape<Function>::Positions{});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  Tally tally{dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), argv + 2, 0, 0};
  if (tally.library == nullptr) {
    printf("%s\n", dlerror());
    return 2;
  }
  Check<decltype(cuGadgetArmOnly)>(&tally, gpufence::kSym_cuGadgetArmOnly);
  Check<decltype(cuGadgetBlend)>(&tally, gpufence::kSym_cuGadgetBlend);
  Check<decltype(cuGadgetCopy)>(&tally, gpufence::kSym_cuGadgetCopy);
  Check<decltype(cuGadgetCopy_ptds)>(&tally, gpufence::kSym_cuGadgetCopy_ptds);
  Check<decltype(cuGadgetFill)>(&tally, gpufence::kSym_cuGadgetFill);
  Check<decltype(cuGadgetFill_ptsz)>(&tally, gpufence::kSym_cuGadgetFill_ptsz);
  Check<decltype(cuGadgetFree)>(&tally, gpufence::kSym_cuGadgetFree);
  Check<decltype(cuGadgetImport)>(&tally, gpufence::kSym_cuGadgetImport);
  Check<decltype(cuGadgetMany)>(&tally, gpufence::kSym_cuGadgetMany);
  Check<decltype(cuGadgetName)>(&tally, gpufence::kSym_cuGadgetName);
  Check<decltype(cuGadgetOnDone)>(&tally, gpufence::kSym_cuGadgetOnDone);
  Check<decltype(cuGadgetOpen)>(&tally, gpufence::kSym_cuGadgetOpen);
  Check<decltype(cuGadgetOpen_v2)>(&tally, gpufence::kSym_cuGadgetOpen_v2);
  Check<decltype(cuGadgetOpen_v3)>(&tally, gpufence::kSym_cuGadgetOpen_v3);
  Check<echo::Untyped>(&tally, gpufence::kSym_cuGadgetPrivate);
  Check<decltype(cuGadgetRelease)>(&tally, gpufence::kSym_cuGadgetRelease);
  Check<decltype(cuGadgetVersion)>(&tally, gpufence::kSym_cuGadgetVersion);
  Check<decltype(cuGadgetWalk)>(&tally, gpufence::kSym_cuGadgetWalk);
  Check<decltype(nvmlErrorString)>(&tally, gpufence::kSym_nvmlErrorString);
  Check<decltype(nvmlGaugeGet)>(&tally, gpufence::kSym_nvmlGaugeGet);
  Check<decltype(nvmlGaugeInit_v2)>(&tally, gpufence::kSym_nvmlGaugeInit_v2);
  Check<decltype(nvmlGaugeRead)>(&tally, gpufence::kSym_nvmlGaugeRead);
  Check<decltype(nvmlGaugeRead_v2)>(&tally, gpufence::kSym_nvmlGaugeRead_v2);
  Check<echo::Untyped>(&tally, gpufence::kSym_nvmlGaugeSecret);
  printf("%u calls, %u deviations\n", tally.calls, tally.deviations);
  return tally.deviations == 0 ? 0 : 1;
}
