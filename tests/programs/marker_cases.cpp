// The parts of markers over a driver made of a few lines, each case a promise.
// sources: device/markers/*.cpp device/gpu_clock.cpp
//
//   marker_cases CASE
//
// Ends with 1 and says which line did not hold.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>

#include "device/ids.h"
#include "device/markers/busy.h"
#include "device/markers/markers.h"
#include "device/markers/runs.h"
#include "real.h"

constinit std::atomic<void*> gpufence_entry[gpufence::kSymCount] = {};

namespace gpufence {

uint32_t DeviceOfContext(CUcontext) { return 0; }

}  // namespace gpufence

namespace {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test of what is in it

#define CHECK(condition)                                 \
  do {                                                   \
    if (!(condition)) {                                  \
      fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
      exit(1);                                           \
    }                                                    \
  } while (false)

// ---- the driver ----

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);

template <typename Function>
void Set(Sym sym, Function* function) {
  gpufence_entry[sym].store(reinterpret_cast<void*>(function), std::memory_order_relaxed);
}

template <Sym kSym, typename... Arguments>
void Answer() {
  Set<CUresult(Arguments...)>(kSym, [](Arguments...) { return CUDA_SUCCESS; });
}

void Install() {
  for (auto& entry : gpufence_entry) {
    entry.store(reinterpret_cast<void*>(+[] { return CUDA_ERROR_NOT_SUPPORTED; }));
  }
  Set<CUresult(CUcontext*)>(kSym_cuCtxGetCurrent, [](CUcontext* current) {
    *current = kContext;
    return CUDA_SUCCESS;
  });
  Set<CUresult(CUstream, CUcontext*)>(kSym_cuStreamGetCtx, [](CUstream, CUcontext* context) {
    *context = kContext;
    return CUDA_SUCCESS;
  });
  Set<CUresult(CUevent*, unsigned)>(kSym_cuEventCreate, [](CUevent* event, unsigned) {
    static uintptr_t next = 0x2000;
    *event = reinterpret_cast<CUevent>(++next);
    return CUDA_SUCCESS;
  });
  Answer<kSym_cuCtxPushCurrent_v2, CUcontext>();
  Answer<kSym_cuCtxPopCurrent_v2, CUcontext*>();
  Answer<kSym_cuEventRecord, CUevent, CUstream>();
}

struct Free {
  void operator()(Markers* markers) const { free(markers); }
};

std::unique_ptr<Markers, Free> NewMarkers() {
  return std::unique_ptr<Markers, Free>(static_cast<Markers*>(calloc(1, sizeof(Markers))));
}

CUstream Handle(uintptr_t number) { return reinterpret_cast<CUstream>(0x10000 + number); }

// ---- cases ----

// A full list charges each device for what it ran, and too much rather than too little.
void FullList() {
  BusyIntervals<4> busy;
  busy.Add(0, 100, 110);
  busy.Add(0, 120, 130);
  busy.Add(1, 200, 210);
  busy.Add(1, 220, 230);

  busy.Add(0, 140, 150);
  CHECK(busy.begin()[1].begin_ns == 120 && busy.begin()[1].end_ns == 150);
  CHECK(busy.begin()[3].begin_ns == 220 && busy.begin()[3].end_ns == 230);

  busy.Add(0, 90, 95);  // of another stream
  CHECK(busy.begin()[1].begin_ns == 90 && busy.begin()[1].end_ns == 150);

  busy.Add(2, 300, 310);
  CHECK(busy.end() - busy.begin() == 4);
  CHECK(busy.begin()[2].ordinal == 1 && busy.begin()[2].begin_ns == 200);
  CHECK(busy.begin()[2].end_ns == 230);
  CHECK(busy.begin()[3].ordinal == 2 && busy.begin()[3].begin_ns == 300);
}

// A stream that loses its place: whoever found it there learns that behind its launch.
void LostPlace() {
  const auto markers = NewMarkers();
  uintptr_t other = 0;
  while (other < 4 * kMostMarkedStreams) markers->streams.For(Handle(++other));
  MarkedStream* lost = markers->streams.For(Handle(0));  // the first place of a full set
  const uint32_t found = lost->word.load();
  while (StreamTable::IsOf(*lost, Handle(0))) markers->streams.For(Handle(++other));
  lost->word.fetch_add(2);  // the other stream's own launches

  const uint32_t before = lost->word.fetch_add(1);
  CHECK(((before ^ found) & MarkedStream::kLife) != 0);
  lost->Uncount(before);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 2);

  // A marker counted all three of them: it keeps the third.
  lost->word.fetch_sub(2);
  lost->Uncount(before);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 0);

  CHECK(BeginRun(markers.get(), lost, Handle(0), {}, false, 1) == Begun::kOtherStream);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 0);
  MarkedStream* anew = markers->streams.For(Handle(0));
  CHECK(BeginRun(markers.get(), anew, Handle(0), {}, false, 1) == Begun::kYes);
  CHECK(anew->first != kNoMarker || (anew->word.load() & MarkedStream::kLaunches) == 1);
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {
    {"full_list", FullList},
    {"lost_place", LostPlace},
};

}  // namespace

int main(int argc, char** argv) {
  Install();
  for (const Case& known : kCases) {
    if (argc == 2 && strcmp(argv[1], known.name) == 0) {
      known.run();
      return 0;
    }
  }
  return 2;
}
