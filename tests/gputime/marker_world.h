// Markers over a driver made of a few lines, for the programs that hold them to their promises.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "device/ids.h"
#include "device/markers/looks.h"
#include "device/markers/markers.h"
#include "device/markers/runs.h"
#include "real.h"

constinit std::atomic<void*> gpufence_entry[gpufence::kSymCount] = {};

namespace gpufence {

uint32_t DeviceOfContext(CUcontext) { return 0; }

}  // namespace gpufence

namespace markertest {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test of what is in it

#define CHECK(condition)                                 \
  do {                                                   \
    if (!(condition)) {                                  \
      fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
      exit(1);                                           \
    }                                                    \
  } while (false)

// ---- the driver ----

// What happens in the next call of a kind, as if the driver waited, or called the program back.
inline std::function<void()> in_record;
inline std::function<void()> in_any_call;
inline CUresult state = CUDA_SUCCESS;  // what is asked for is over, or is not

// The thread's capture mode; asked in another one than relaxed, the driver ends open captures.
inline thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline int asked_relaxed = 0;
inline int asked_otherwise = 0;

inline void CountAsked() {
  ++(mode == CU_STREAM_CAPTURE_MODE_RELAXED ? asked_relaxed : asked_otherwise);
}

inline CUresult Called(CUresult rc = CUDA_SUCCESS) {
  const std::function<void()> action = std::exchange(in_any_call, nullptr);
  if (action) action();
  return rc;
}

inline CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);

template <typename Function>
void Set(Sym sym, Function* function) {
  gpufence_entry[sym].store(reinterpret_cast<void*>(function), std::memory_order_relaxed);
}

template <Sym kSym, typename... Arguments>
void Answer() {
  Set<CUresult(Arguments...)>(kSym, [](Arguments...) { return Called(); });
}

inline void Install() {
  for (auto& entry : gpufence_entry) {
    entry.store(reinterpret_cast<void*>(+[] { return CUDA_ERROR_NOT_SUPPORTED; }));
  }
  Set<CUresult(CUcontext*)>(kSym_cuCtxGetCurrent, [](CUcontext* current) {
    *current = kContext;
    return Called();
  });
  Set<CUresult(CUstream, CUcontext*)>(kSym_cuStreamGetCtx, [](CUstream, CUcontext* context) {
    *context = kContext;
    return CUDA_SUCCESS;
  });
  Set<CUresult(CUevent*, unsigned)>(kSym_cuEventCreate, [](CUevent* event, unsigned) {
    static uintptr_t next = 0x2000;
    *event = reinterpret_cast<CUevent>(++next);
    return Called();
  });
  Set<CUresult(CUevent, CUstream)>(kSym_cuEventRecord, [](CUevent, CUstream) {
    const std::function<void()> action = std::exchange(in_record, nullptr);
    if (action) action();
    return Called();
  });
  Set<CUresult(CUevent)>(kSym_cuEventQuery, [](CUevent) {
    CountAsked();
    return Called(state);
  });
  Set<CUresult(CUstream)>(kSym_cuStreamQuery, [](CUstream) {
    CountAsked();
    return Called(state);
  });
  Set<CUresult(CUstreamCaptureMode*)>(kSym_cuThreadExchangeStreamCaptureMode,
                                      [](CUstreamCaptureMode* other) {
                                        std::swap(*other, mode);
                                        return Called();
                                      });
  Set<CUresult(float*, CUevent, CUevent)>(kSym_cuEventElapsedTime, [](float* ms, CUevent, CUevent) {
    CountAsked();
    *ms = 1;
    return Called();
  });
  Answer<kSym_cuCtxPushCurrent_v2, CUcontext>();
  Answer<kSym_cuCtxPopCurrent_v2, CUcontext*>();
  Answer<kSym_cuEventDestroy_v2, CUevent>();
}

struct Free {
  void operator()(Markers* markers) const { free(markers); }
};

inline std::unique_ptr<Markers, Free> NewMarkers() {
  last_stream = nullptr;
  return std::unique_ptr<Markers, Free>(static_cast<Markers*>(calloc(1, sizeof(Markers))));
}

inline CUstream Handle(uintptr_t number) { return reinterpret_cast<CUstream>(0x10000 + number); }

inline uint32_t LaunchesIn(const MarkedStream& stream) {
  return stream.word.load() & MarkedStream::kLaunches;
}

inline bool Runs(const MarkedStream& stream) {
  return (stream.word.load() & MarkedStream::kRunning) != 0;
}

// A stream that runs and of which nothing is queued but so many launches without a marker.
inline MarkedStream* RunningStream(Markers* markers, uintptr_t number, uint32_t launches) {
  MarkedStream* stream = markers->streams.For(Handle(number));
  CHECK(BeginRun(markers, stream, Handle(number), {}, false) == Begun::kYes);
  BusyIntervals<8> busy;
  CollectAll(markers, NowNs(), false, &busy);
  CHECK(stream->first == kNoMarker);
  stream->word.fetch_add(launches);
  return stream;
}

template <typename Call>
void OnAnotherThread(Call call) {
  std::thread(call).join();
}

// One promise that a program can be asked to keep.
struct Case {
  const char* name;
  void (*run)();
};

// A program's exit status: 0 when the case that its only word names holds (a check that fails ends
// it before), 2 when there is none of that name.
template <size_t kCount>
int RunCase(const Case (&cases)[kCount], int argc, char** argv) {
  Install();
  for (const Case& one : cases) {
    if (argc == 2 && strcmp(argv[1], one.name) == 0) {
      one.run();
      return 0;
    }
  }
  return 2;
}

}  // namespace markertest
