// Keeps a GPU as busy as it may and says how busy that was: the time that its kernels take on the
// simulated GPU over the time until all of it was paid for.
// link: cuda
// flags: -pthread
//
//   cores_run WAY MANNER KERNEL_US MS [LAUNCH_NS]
//
// Ways: the driver's functions (cores_ways.h). Manners: steady, two (streams), many (streams),
// legacy (stream), per_thread (stream), contexts (two, in turn), devices (two, in turn), sync
// (after each), mixed (the same, every other one ten times as long), handoff (two streams; each
// waits for what the other was given, eight at a time), event (a wait for one after every four),
// ahead (the same, four more are queued before), eager (as frameworks: many short
// kernels, then eight eighty times as long), hastens (steady, and after half of the time as fast as
// it can), quickens (steady, and from then on launches take half as long), pauses (twice a kernel's
// length behind each), bursts (sixty, waited for, and a pause of seven thirds of their time),
// copies (to the host, between the kernels, as long as they), fills and moves (a small fill, or a
// copy within the GPU, behind each) and wide (of 65,536 blocks).
//
// Prints {"share": percent, "between": the same from one held launch to the last one, behind a
// quarter of the time, or of all where none was held; "least", "most": of a single second,
// "longest_us": that a launch took, "launches": n, "us": elapsed}.
// Behind each launch the host is busy for LAUNCH_NS.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "cores_ways.h"

using namespace timing;

namespace {

constexpr double kSecondUs = 1e6;
constexpr unsigned long long kMoreThanABurstNs = 50 * kMs;
constexpr double kHeldUs = 500;
constexpr size_t kMany = 32;
constexpr unsigned kBatch = 4;
constexpr unsigned kManyBlocks = 65'536;
constexpr unsigned kBurst = 60;
constexpr unsigned kHandedOff = 8;
constexpr size_t kSmallBytes = 64;
constexpr unsigned long long kBusNsPerByte = 2;  // with GPUFENCE_SIM_BUS_MB_PER_S=500

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// One GPU, or one context of it, with streams of its own.
struct Place {
  Place(int ordinal, size_t count) : gpu(0, ordinal), work{gpu, 0, nullptr}, streams(count) {
    for (CUstream& stream : streams) stream = NewStream();
  }
  Gpu gpu;
  Work work;
  std::vector<CUstream> streams;
};

struct Run {
  const Way* way;
  const char* manner;
  unsigned long long kernel_ns;
  double launch_us;
  double hastens_us;  // from then on a launch takes no time, or half of it
  std::vector<Place*> places;
  CUdeviceptr memory;
  void* host;
  CUevent batch_ends[2];
  unsigned launches;
  unsigned long long busy_ns;  // of all launches
  double launched_us;          // when the last one returned
  double held_us;              // for how long it was held
  double longest_us;
  double counts_us;  // from then on holds count
  // When the first and the last one of those were over, and what was launched before.
  std::pair<double, double> paid[2];
  std::vector<double> ends_us;  // when launches returned, from the begin

  bool Is(const char* name) const { return strcmp(manner, name) == 0; }

  // How many times as long the next kernel is.
  unsigned Times() const {
    if (Is("mixed") && launches % 2 == 1) return 10;
    return Is("eager") && launches % 64 >= 56 ? 80 : 1;
  }

  CUstream Stream(const Place& place) const {
    if (Is("legacy")) return nullptr;
    if (Is("per_thread")) return reinterpret_cast<CUstream>(2);
    const unsigned turns = Is("handoff") ? launches / kHandedOff : launches;
    return place.streams[turns % place.streams.size()];
  }

  void Launch() {
    Place& place = *places[launches % places.size()];
    if (places.size() > 1) MUST(cuCtxSetCurrent(place.gpu.context));
    CUstream stream = Stream(place);
    const unsigned long long ns = kernel_ns * Times();
    const bool hurries = Is("hastens") && launched_us >= hastens_us;
    place.work.ns = ns;
    const double begin_us = NowUs();
    MUST(way->launch(place.work, stream));
    launched_us = NowUs();
    held_us = launched_us - begin_us;
    longest_us = std::max(longest_us, held_us);
    if (held_us > kHeldUs && launched_us > counts_us) {
      paid[1] = {launched_us, static_cast<double>(busy_ns)};
      if (paid[0].first == 0) paid[0] = paid[1];
    }
    ++launches;
    busy_ns += ns;
    const double spent_us = Is("quickens") && launched_us >= hastens_us ? launch_us / 2 : launch_us;
    if (launch_us != 0 && !hurries) BusyUntil(NowUs, launched_us + spent_us);
    Between(stream);
  }

  bool AwaitsBatches() const { return Is("event") || Is("ahead"); }

  // The last one's end, or the one's before.
  void AwaitBatch(CUstream stream) {
    const unsigned batch = launches / kBatch;
    MUST(cuEventRecord(batch_ends[batch % 2], stream));
    MUST(cuEventSynchronize(batch_ends[(Is("ahead") ? batch + 1 : batch) % 2]));
  }

  // The stream whose turn is next waits for all that was launched.
  void HandOff(CUstream stream) {
    MUST(cuEventRecord(batch_ends[0], stream));
    MUST(cuStreamWaitEvent(Stream(*places[0]), batch_ends[0], 0));
  }

  void Between(CUstream stream) {
    if (Is("sync") || Is("mixed") || Is("pauses")) MUST(cuStreamSynchronize(stream));
    if (Is("handoff") && launches % kHandedOff == 0) HandOff(stream);
    if (AwaitsBatches() && launches % kBatch == 0) AwaitBatch(stream);
    if (Is("pauses")) usleep(static_cast<useconds_t>(kernel_ns / 500));
    if (Is("bursts") && launches % kBurst == 0) {
      MUST(cuStreamSynchronize(stream));
      usleep(static_cast<useconds_t>(kernel_ns * kBurst * 7 / 3 / kUs));
    }
    if (Is("copies")) {
      MUST(cuMemcpyDtoHAsync_v2(host, memory, kernel_ns / kBusNsPerByte, stream));
    }
    if (Is("fills")) MUST(cuMemsetD8Async(memory, 0, kSmallBytes, stream));
    if (Is("moves")) MUST(cuMemcpyDtoDAsync_v2(memory, memory + kSmallBytes, kSmallBytes, stream));
  }
};

void Open(Run* run) {
  const size_t places = run->Is("contexts") || run->Is("devices") ? 2 : 1;
  for (size_t i = 0; i < places; ++i) {
    const size_t streams = run->Is("many") ? kMany : run->Is("two") || run->Is("handoff") ? 2 : 1;
    Place* place = new Place(run->Is("devices") ? static_cast<int>(i) : 0, streams);
    place->work.ns = run->kernel_ns;
    if (run->Is("wide")) place->work.blocks = kManyBlocks;
    if (run->way->prepare != nullptr) run->way->prepare(&place->work);
    run->places.push_back(place);
  }
  for (CUevent& end : run->batch_ends) {
    if (run->AwaitsBatches() || run->Is("handoff"))
      MUST(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  }
  const size_t bytes = run->kernel_ns / kBusNsPerByte;
  if (run->Is("copies") || run->Is("fills") || run->Is("moves")) {
    MUST(cuMemAlloc_v2(&run->memory, bytes));
  }
  if (run->Is("copies")) MUST(cuMemAllocHost_v2(&run->host, bytes));
}

void Synchronize(const Run& run) {
  for (const Place* place : run.places) {
    MUST(cuCtxSetCurrent(place->gpu.context));
    MUST(cuCtxSynchronize());
  }
}

// Launches on until one is held: that goes when everything before it is paid for. Who is not held
// in a whole burst has nothing to pay. Returns what was launched before, and when it was paid for.
std::pair<unsigned long long, double> AwaitPaid(Run* run) {
  const unsigned long long until_ns = run->busy_ns + kMoreThanABurstNs;
  while (run->busy_ns < until_ns) {
    const unsigned long long before_ns = run->busy_ns;
    run->Launch();
    if (run->held_us > kHeldUs) return {before_ns, run->launched_us};
  }
  Synchronize(*run);
  return {run->busy_ns, NowUs()};
}

// Percent of each whole second, by the launches that returned in it.
void TellSeconds(const Run& run, double share_of_launch, Facts* facts) {
  double least = 100;
  double most = 0;
  const double last_us = run.ends_us.back();
  for (double begin_us = 0; begin_us + kSecondUs <= last_us; begin_us += kSecondUs) {
    const auto count = std::count_if(run.ends_us.begin(), run.ends_us.end(), [&](double us) {
      return us >= begin_us && us < begin_us + kSecondUs;
    });
    const double percent = static_cast<double>(count) * share_of_launch / kSecondUs;
    least = std::min(least, percent);
    most = std::max(most, percent);
  }
  facts->Say("least", least);
  facts->Say("most", most);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  const unsigned long long kernel_ns = strtoull(argv[3], nullptr, 10) * kUs;
  Run run = {};
  run.way = WayOf(argv[1]);
  run.manner = argv[2];
  run.kernel_ns = kernel_ns;
  run.hastens_us = 1e300;
  if (run.way == nullptr) return 3;
  if (argc == 6) run.launch_us = strtod(argv[5], nullptr) / 1e3;
  Open(&run);

  const double begin_us = NowUs();
  const double until_us = begin_us + strtod(argv[4], nullptr) * 1e3;
  run.counts_us = begin_us + (until_us - begin_us) / 4;
  if (run.Is("hastens") || run.Is("quickens")) run.hastens_us = (begin_us + until_us) / 2;
  while (NowUs() < until_us) {
    run.Launch();
    run.ends_us.push_back(NowUs() - begin_us);
  }
  Synchronize(run);
  const double launches = run.launches;
  // Of each device: two that take turns have half of the launches each.
  const double parts = run.Is("devices") ? static_cast<double>(run.places.size()) : 1;
  const double mean_ns = static_cast<double>(run.busy_ns) / launches / parts;
  const auto [busy_ns, paid_us] = AwaitPaid(&run);
  const double us = paid_us - begin_us;
  Synchronize(run);

  Facts facts;
  facts.Say("share", static_cast<double>(busy_ns) / 10 / parts / us);
  const auto [first, last] = run.paid;
  const double between = (last.second - first.second) / 10 / parts / (last.first - first.first);
  facts.Say("between",
            last.first > first.first ? between : static_cast<double>(busy_ns) / 10 / parts / us);
  TellSeconds(run, mean_ns / 10, &facts);
  facts.Say("longest_us", run.longest_us);
  facts.Say("launches", launches);
  facts.Say("us", us);
  return 0;
}
