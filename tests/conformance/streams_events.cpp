// link: cuda
// flags: -pthread -Wl,-z,lazy
// Facts: what streams and events answer, which work waits for which, and what elapsed time says.

#include "gpu.h"

namespace conformance {
namespace {

constexpr unsigned long long kSpinNs = 60'000'000;  // long against any call, short enough to wait

const auto kLegacyStream = reinterpret_cast<CUstream>(1);
const auto kPerThreadStream = reinterpret_cast<CUstream>(2);

// Whether `later` lies on the GPU's own clock before `earlier`; both recorded with timing and done.
bool Overtook(const Event& later, const Event& earlier) {
  float milliseconds = 0;
  cuEventElapsedTime(&milliseconds, earlier.get(), later.get());
  return milliseconds < 0;
}

// Whether work given to `second` after a long kernel on `first` waits for that kernel.
bool Waits(const Kernels& kernels, CUstream first, CUstream second) {
  constexpr int kAttempts = 5;  // a loaded machine may hold us back between the two launches
  bool waits = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Event spin_end(CU_EVENT_DEFAULT);
    Event other_end(CU_EVENT_DEFAULT);
    const long long start_ns = NowNs();
    LaunchSpin(kernels, first, kSpinNs);
    cuEventRecord(spin_end.get(), first);
    LaunchEmpty(kernels, second);
    cuEventRecord(other_end.get(), second);
    const bool in_time = NowNs() - start_ns < static_cast<long long>(kSpinNs) / 2;
    cuCtxSynchronize();
    waits = !Overtook(other_end, spin_end);
    if (in_time) break;
  }
  return waits;
}

void Handles(Facts& facts) {
  CUstream stream = nullptr;
  facts.Code("stream.bad_flags", cuStreamCreate(&stream, 0x80));
  facts.Code("stream.null", cuStreamCreate(nullptr, 0));
  facts.Code("stream.create", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned flags = 77;
  int priority = 77;
  CUcontext context = nullptr;
  CUcontext current = nullptr;
  unsigned long long id = 0;
  unsigned long long legacy_id = 0;
  facts.Code("stream.flags", cuStreamGetFlags(stream, &flags));
  facts.Number("stream.flags_are", flags);
  facts.Code("stream.priority", cuStreamGetPriority(stream, &priority));
  facts.Number("stream.priority_is", priority);
  cuCtxGetCurrent(&current);
  facts.Code("stream.context", cuStreamGetCtx(stream, &context));
  facts.Is("stream.context_is_current", context == current);
  facts.Code("stream.id", cuStreamGetId(stream, &id));
  facts.Code("stream.id_of_legacy", cuStreamGetId(nullptr, &legacy_id));
  facts.Is("stream.ids_differ", id != legacy_id);
  facts.Code("stream.query_idle", cuStreamQuery(stream));
  facts.Code("stream.query_null", cuStreamQuery(nullptr));
  facts.Code("stream.query_legacy", cuStreamQuery(kLegacyStream));
  facts.Code("stream.query_per_thread", cuStreamQuery(kPerThreadStream));
  facts.Code("stream.destroy", cuStreamDestroy_v2(stream));
  facts.Code("stream.destroy_null", cuStreamDestroy_v2(nullptr));
  facts.Code("stream.destroy_legacy", cuStreamDestroy_v2(kLegacyStream));
  int lowest = 0;
  int highest = 0;
  cuCtxGetStreamPriorityRange(&lowest, &highest);
  facts.Code("stream.priority_beyond_highest",
             cuStreamCreateWithPriority(&stream, 0, highest - 10));
  cuStreamGetPriority(stream, &priority);
  facts.Is("stream.priority_is_clamped", priority == highest);
  cuStreamDestroy_v2(stream);
}

void EventCodes(Facts& facts) {
  CUevent event = nullptr;
  facts.Code("event.bad_flags", cuEventCreate(&event, 0x100));
  facts.Code("event.interprocess_with_timing", cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  facts.Code("event.null", cuEventCreate(nullptr, 0));
  facts.Code("event.create", cuEventCreate(&event, CU_EVENT_DEFAULT));
  facts.Code("event.query_unrecorded", cuEventQuery(event));
  facts.Code("event.synchronize_unrecorded", cuEventSynchronize(event));
  Stream stream;
  facts.Code("event.wait_for_unrecorded", cuStreamWaitEvent(stream.get(), event, 0));
  facts.Code("event.wait_bad_flags", cuStreamWaitEvent(stream.get(), event, 0x80));
  facts.Code("event.query_null", cuEventQuery(nullptr));
  facts.Code("event.record_null", cuEventRecord(nullptr, stream.get()));
  facts.Code("event.destroy", cuEventDestroy_v2(event));
  facts.Code("event.destroy_null", cuEventDestroy_v2(nullptr));

  float milliseconds = 77;
  CUevent first = nullptr;
  CUevent second = nullptr;
  cuEventCreate(&first, CU_EVENT_DEFAULT);
  cuEventCreate(&second, CU_EVENT_DEFAULT);
  facts.Code("elapsed.unrecorded", cuEventElapsedTime(&milliseconds, first, second));
  cuEventRecord(first, stream.get());
  facts.Code("elapsed.half_recorded", cuEventElapsedTime(&milliseconds, first, second));
  facts.Is("elapsed.refused_leaves_output", milliseconds == 77);
  Event silent;
  cuEventRecord(silent.get(), stream.get());
  cuStreamSynchronize(stream.get());
  facts.Code("elapsed.without_timing", cuEventElapsedTime(&milliseconds, first, silent.get()));
  facts.Code("elapsed.of_itself", cuEventElapsedTime(&milliseconds, first, first));
  facts.Is("elapsed.of_itself_is_zero", milliseconds == 0);
  cuEventDestroy_v2(first);
  cuEventDestroy_v2(second);
}

void Busy(Facts& facts, const Kernels& kernels) {
  Stream stream;
  Event start(CU_EVENT_DEFAULT);
  Event end(CU_EVENT_DEFAULT);
  float milliseconds = 0;
  cuEventRecord(start.get(), stream.get());
  LaunchSpin(kernels, stream.get(), kSpinNs);
  cuEventRecord(end.get(), stream.get());
  facts.Code("busy.stream_query", cuStreamQuery(stream.get()));
  facts.Code("busy.event_query", cuEventQuery(end.get()));
  facts.Code("busy.elapsed", cuEventElapsedTime(&milliseconds, start.get(), end.get()));
  facts.Code("busy.event_synchronize", cuEventSynchronize(end.get()));
  facts.Code("busy.query_afterwards", cuStreamQuery(stream.get()));
  facts.Code("busy.elapsed_afterwards", cuEventElapsedTime(&milliseconds, start.get(), end.get()));
  // The kernel ends at the first look at the clock after its time: never early, hardly late.
  facts.Is("busy.elapsed_not_less_than_declared", milliseconds >= 59.9f);
  facts.Is("busy.elapsed_about_as_declared", milliseconds < 90.f);
  facts.Measured("busy.elapsed_us", static_cast<long long>(milliseconds * 1000));
  float v2_milliseconds = 0;
  facts.Code("busy.elapsed_v2", cuEventElapsedTime_v2(&v2_milliseconds, start.get(), end.get()));
  facts.Is("busy.elapsed_v2_agrees", v2_milliseconds == milliseconds);
  // An event names the last record only.
  LaunchSpin(kernels, stream.get(), kSpinNs);
  cuEventRecord(end.get(), stream.get());
  facts.Code("busy.rerecorded_is_not_ready", cuEventQuery(end.get()));
  facts.Code("busy.destroy_recorded_event_is_allowed", [&] {
    CUevent short_lived = nullptr;
    cuEventCreate(&short_lived, CU_EVENT_DEFAULT);
    cuEventRecord(short_lived, stream.get());
    return cuEventDestroy_v2(short_lived);
  }());
  cuCtxSynchronize();
}

void Order(Facts& facts, const Kernels& kernels) {
  Stream blocking(CU_STREAM_DEFAULT);
  Stream blocking_too(CU_STREAM_DEFAULT);
  Stream free_stream(CU_STREAM_NON_BLOCKING);
  Stream free_too(CU_STREAM_NON_BLOCKING);
  struct Case {
    const char* name;
    CUstream first;
    CUstream second;
  };
  const Case cases[] = {
      {"same_stream", free_stream.get(), free_stream.get()},
      {"legacy_after_blocking", blocking.get(), nullptr},
      {"blocking_after_legacy", nullptr, blocking.get()},
      {"legacy_after_non_blocking", free_stream.get(), nullptr},
      {"non_blocking_after_legacy", nullptr, free_stream.get()},
      {"blocking_after_blocking", blocking.get(), blocking_too.get()},
      {"non_blocking_after_non_blocking", free_stream.get(), free_too.get()},
      {"per_thread_after_legacy", kLegacyStream, kPerThreadStream},
      {"legacy_after_per_thread", kPerThreadStream, kLegacyStream},
      {"per_thread_after_blocking", blocking.get(), kPerThreadStream},
      {"per_thread_after_non_blocking", free_stream.get(), kPerThreadStream},
      {"explicit_legacy_after_blocking", blocking.get(), kLegacyStream},
  };
  for (const Case& one : cases) {
    facts.Is(std::string("waits.") + one.name, Waits(kernels, one.first, one.second));
  }
  Event gate;
  Event spin_end(CU_EVENT_DEFAULT);
  Event other_end(CU_EVENT_DEFAULT);
  LaunchSpin(kernels, free_stream.get(), kSpinNs);
  cuEventRecord(gate.get(), free_stream.get());
  LaunchSpin(kernels, free_stream.get(), kSpinNs);
  cuEventRecord(spin_end.get(), free_stream.get());
  cuStreamWaitEvent(free_too.get(), gate.get(), 0);
  cuEventRecord(other_end.get(), free_too.get());
  cuEventSynchronize(other_end.get());
  facts.Is("wait_event.event_was_done", gate.done());
  cuCtxSynchronize();
  facts.Is("wait_event.waits_for_the_event_only", Overtook(other_end, spin_end));
}

// What a stream with nothing of its own says while another one runs.
void Ready(Facts& facts, const Kernels& kernels) {
  Stream blocking(CU_STREAM_DEFAULT);
  Stream free_stream(CU_STREAM_NON_BLOCKING);
  struct Case {
    const char* name;
    CUstream busy;
    CUstream asked;
  };
  const Case cases[] = {
      {"legacy_while_blocking_runs", blocking.get(), kLegacyStream},
      {"blocking_while_legacy_runs", kLegacyStream, blocking.get()},
      {"legacy_while_non_blocking_runs", free_stream.get(), kLegacyStream},
      {"legacy_while_per_thread_runs", kPerThreadStream, kLegacyStream},
      {"per_thread_while_legacy_runs", kLegacyStream, kPerThreadStream},
  };
  for (const Case& one : cases) {
    LaunchSpin(kernels, one.busy, kSpinNs);
    facts.Code(std::string("ready.") + one.name, cuStreamQuery(one.asked));
    cuStreamSynchronize(one.asked);
    facts.Is(std::string("synchronize.waits.") + one.name, cuStreamQuery(one.busy) == CUDA_SUCCESS);
    cuCtxSynchronize();
  }
}

// Two streams of one process share the GPU at the same time, as far as there is room.
void Together(Facts& facts, const Kernels& kernels) {
  Stream one;
  Stream two;
  const long long start_ns = NowNs();
  LaunchSpin(kernels, one.get(), kSpinNs);
  LaunchSpin(kernels, two.get(), kSpinNs);
  cuCtxSynchronize();
  const long long both_ns = NowNs() - start_ns;
  facts.Is("together.small_kernels_overlap", both_ns < static_cast<long long>(kSpinNs) * 17 / 10);
  facts.Measured("together.two_spins_of_60ms_us", both_ns / 1000);
}

struct CallbackSeen {
  CUresult status = CUDA_ERROR_UNKNOWN;
  CUresult inside = CUDA_ERROR_UNKNOWN;
  CUstream stream = nullptr;
  bool called = false;
};

void Callbacks(Facts& facts, const Kernels& kernels) {
  Stream stream;
  CallbackSeen seen;
  LaunchSpin(kernels, stream.get(), kSpinNs);
  facts.Code("callback.add", cuStreamAddCallback(
                                 stream.get(),
                                 [](CUstream given, CUresult status, void* data) {
                                   auto* result = static_cast<CallbackSeen*>(data);
                                   result->status = status;
                                   result->stream = given;
                                   CUdeviceptr memory = 0;
                                   result->inside = cuMemAlloc_v2(&memory, kMib);
                                   result->called = true;
                                 },
                                 &seen, 0));
  facts.Is("callback.not_before_the_work", !seen.called);
  cuStreamSynchronize(stream.get());
  facts.Is("callback.before_synchronize_returns", seen.called);
  facts.Code("callback.status", seen.status);
  facts.Is("callback.gets_the_stream", seen.stream == stream.get());
  facts.Code("callback.driver_call_inside", seen.inside);
  facts.Code("callback.bad_flags", cuStreamAddCallback(stream.get(), nullptr, &seen, 7));

  bool ran = false;
  facts.Code(
      "host_function.launch",
      cuLaunchHostFunc(stream.get(), [](void* data) { *static_cast<bool*>(data) = true; }, &ran));
  cuStreamSynchronize(stream.get());
  facts.Is("host_function.ran", ran);
  facts.Code("host_function.null", cuLaunchHostFunc(stream.get(), nullptr, nullptr));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("streams_events");
  UsePrimary(FirstDevice(facts));
  const Kernels kernels = LoadKernels();
  LaunchSpin(kernels, nullptr, 1000);  // the first launch loads code, which takes a while
  LaunchEmpty(kernels, nullptr);
  cuCtxSynchronize();
  Handles(facts);
  EventCodes(facts);
  Busy(facts, kernels);
  Order(facts, kernels);
  Ready(facts, kernels);
  Together(facts, kernels);
  Callbacks(facts, kernels);
  return 0;
}
