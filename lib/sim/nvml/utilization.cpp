// How busy devices and processes were, as NVML samples it: late, coarse and only now and then.
//
// A sample is taken at every multiple of kSampleNs of the machine's clock and looks back: a
// device's over one period, a process's over a second. Nothing newer can be seen, whoever asks how
// often; on GPUs that are split nobody is told. Times come out as microseconds since 1970. Must not
// know what made anybody busy.

#include <time.h>

#include <atomic>

#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::machine::BusyHistory;
using sim::machine::BusyNs;
using sim::machine::Clock;
using sim::machine::Device;
using sim::machine::kMaxSlots;
using sim::machine::LiveSlots;
using sim::machine::Slot;
using sim::machine::SlotAt;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::PutFor;

// Real boards sample every 1/6 s to 1 s. Whole buckets of the history, so that nothing is rounded.
constexpr uint64_t kSampleNs = 9 * sim::machine::kBusyBucketNs;
constexpr uint64_t kProcessWindowNs = 50 * sim::machine::kBusyBucketNs;
static_assert(kProcessWindowNs == 1'000'000'000);

// How many past samples a device remembers: what its history covers, one bucket aside.
constexpr uint64_t kSamplesKept =
    (sim::machine::kBusyBuckets - 1) * sim::machine::kBusyBucketNs / kSampleNs;

constexpr unsigned kMediaPeriodUs = 167'000;  // of the encoder and decoder figures

uint64_t Now() { return sim::NowNs(Clock()); }

uint64_t NewestSampleNs() { return Now() / kSampleNs * kSampleNs; }

unsigned Percent(const BusyHistory& history, uint64_t end_ns, uint64_t window_ns) {
  const uint64_t start_ns = end_ns > window_ns ? end_ns - window_ns : 0;
  const uint64_t percent = (BusyNs(history, start_ns, end_ns) * 100 + window_ns / 2) / window_ns;
  return static_cast<unsigned>(percent < 100 ? percent : 100);
}

uint64_t WallNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t RealNs(uint64_t simulated_ns) {
  return Clock().is_virtual != 0 ? simulated_ns : sim::ToRealNs(Clock(), simulated_ns);
}

// Wall time at which the machine's clock showed 0, read once: a sample must carry the same time
// whenever it is asked for, or "newer than the last one seen" would repeat it.
constinit std::atomic<uint64_t> g_epoch_ns{0};

uint64_t EpochNs() {
  uint64_t epoch_ns = g_epoch_ns.load(std::memory_order_relaxed);
  if (epoch_ns != 0) return epoch_ns;
  const uint64_t read_ns = WallNs() - RealNs(Now());
  return g_epoch_ns.compare_exchange_strong(epoch_ns, read_ns, std::memory_order_relaxed)
             ? read_ns
             : epoch_ns;
}

unsigned long long TimestampUs(uint64_t sample_ns) {
  return (EpochNs() + RealNs(sample_ns)) / 1000;
}

void Fill(unsigned pid, uint64_t sample_ns, unsigned percent,
          nvmlProcessUtilizationSample_t* sample) {
  *sample = {};
  sample->pid = pid;
  sample->timeStamp = TimestampUs(sample_ns);
  sample->smUtil = percent;
}

void Fill(unsigned pid, uint64_t sample_ns, unsigned percent,
          nvmlProcessUtilizationInfo_v1_t* sample) {
  *sample = {};
  sample->pid = pid;
  sample->timeStamp = TimestampUs(sample_ns);
  sample->smUtil = percent;
}

// One sample for each process that was busy in the last window. Without a buffer, or with one that
// is too small, their number and NVML_ERROR_INSUFFICIENT_SIZE; with one, NVML_ERROR_NOT_FOUND when
// nobody was busy or the caller has seen the newest sample.
template <typename Sample>
nvmlReturn_t PutProcessSamples(int index, uint64_t last_seen_us, unsigned* count, Sample* samples) {
  int slots[kMaxSlots];
  const int live = LiveSlots(slots, kMaxSlots);
  const uint64_t sample_ns = NewestSampleNs();
  const bool is_news = TimestampUs(sample_ns) > last_seen_us;
  const unsigned room = samples == nullptr ? 0 : *count;
  unsigned found = 0;
  for (int i = 0; i < live && is_news; ++i) {
    const Slot& slot = SlotAt(slots[i]);
    const unsigned percent = Percent(slot.devices[index].busy, sample_ns, kProcessWindowNs);
    if (percent == 0) continue;
    if (found < room) {
      Fill(slot.pid.load(std::memory_order_relaxed), sample_ns, percent, &samples[found]);
    }
    ++found;
  }
  *count = found;
  if (found > room || room == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
  return found == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t PutMedia(nvmlDevice_t device, unsigned* utilization, unsigned* period_us) {
  if (period_us == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = PutFor(device, utilization, 0u);
  if (result == NVML_SUCCESS) *period_us = kMediaPeriodUs;
  return result;
}

// Which figures a device keeps samples of; only the first of them ever moves.
bool IsSampled(nvmlSamplingType_t type) {
  return type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES ||
         type == NVML_ENC_UTILIZATION_SAMPLES || type == NVML_DEC_UTILIZATION_SAMPLES;
}

}  // namespace

unsigned sim::nvml::LoadPercent(int index) {
  return Percent(Device(index).busy, NewestSampleNs(), kSampleNs);
}

extern "C" nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                      nvmlUtilization_t* utilization) {
  SIM_CALL(nvmlDeviceGetUtilizationRates, device, utilization);
  const int index = IndexOf(device);
  if (index == kNoDevice || utilization == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (sim::nvml::IsSplit()) return NVML_ERROR_NOT_SUPPORTED;
  utilization->gpu = sim::nvml::LoadPercent(index);
  utilization->memory = 0;
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                        nvmlProcessUtilizationSample_t* utilization,
                                                        unsigned int* processSamplesCount,
                                                        unsigned long long lastSeenTimeStamp) {
  SIM_CALL(nvmlDeviceGetProcessUtilization, device, utilization, processSamplesCount,
           lastSeenTimeStamp);
  const int index = IndexOf(device);
  if (index == kNoDevice || processSamplesCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (sim::nvml::IsSplit()) return NVML_ERROR_NOT_SUPPORTED;
  return PutProcessSamples(index, lastSeenTimeStamp, processSamplesCount, utilization);
}

extern "C" nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  SIM_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, procesesUtilInfo);
  const int index = IndexOf(device);
  if (index == kNoDevice || procesesUtilInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (sim::nvml::IsSplit()) return NVML_ERROR_NOT_SUPPORTED;
  if (procesesUtilInfo->version != sim::nvml::VersionOf<nvmlProcessesUtilizationInfo_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  return PutProcessSamples(index, procesesUtilInfo->lastSeenTimeStamp,
                           &procesesUtilInfo->processSamplesCount, procesesUtilInfo->procUtilArray);
}

extern "C" nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                             unsigned long long lastSeenTimeStamp,
                                             nvmlValueType_t* sampleValType,
                                             unsigned int* sampleCount, nvmlSample_t* samples) {
  SIM_CALL(nvmlDeviceGetSamples, device, type, lastSeenTimeStamp, sampleValType, sampleCount,
           samples);
  const int index = IndexOf(device);
  if (index == kNoDevice || sampleValType == nullptr || sampleCount == nullptr) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (!IsSampled(type) || sim::nvml::IsSplit()) return NVML_ERROR_NOT_SUPPORTED;
  *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
  if (samples == nullptr) {  // asks how many there can be
    *sampleCount = kSamplesKept;
    return NVML_SUCCESS;
  }
  const uint64_t newest_ns = NewestSampleNs();
  const uint64_t reach_ns = (kSamplesKept - 1) * kSampleNs;
  uint64_t sample_ns = newest_ns > reach_ns ? newest_ns - reach_ns : kSampleNs;
  unsigned written = 0;
  for (; sample_ns <= newest_ns && written < *sampleCount; sample_ns += kSampleNs) {
    if (TimestampUs(sample_ns) <= lastSeenTimeStamp) continue;
    samples[written].timeStamp = TimestampUs(sample_ns);
    samples[written].sampleValue = {};
    samples[written].sampleValue.uiVal = type == NVML_GPU_UTILIZATION_SAMPLES
                                             ? Percent(Device(index).busy, sample_ns, kSampleNs)
                                             : 0u;
    ++written;
  }
  *sampleCount = written;
  return written > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

extern "C" nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device,
                                                        unsigned int* utilization,
                                                        unsigned int* samplingPeriodUs) {
  SIM_CALL(nvmlDeviceGetEncoderUtilization, device, utilization, samplingPeriodUs);
  return PutMedia(device, utilization, samplingPeriodUs);
}

extern "C" nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device,
                                                        unsigned int* utilization,
                                                        unsigned int* samplingPeriodUs) {
  SIM_CALL(nvmlDeviceGetDecoderUtilization, device, utilization, samplingPeriodUs);
  return PutMedia(device, utilization, samplingPeriodUs);
}
