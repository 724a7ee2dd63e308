// What the kernel gpufence_pace leaves of the GPU's clock, and what a GPU's pauses are by it.
// link: cuda
//
// Prints facts: times in nanoseconds, codes as numbers.
#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned kPaces = 16;
constexpr unsigned long long kCycles = 5'000;

constexpr char kPaceKernel[] = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .global .align 8 .b64 gpufence_paces[32];
.visible .entry gpufence_pace(.param .u64 cycles, .param .u32 index)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<9>;
    mov.u64 %rd1, %globaltimer;
    mov.u64 %rd2, %clock64;
    ld.param.u64 %rd3, [cycles];
    ld.param.u32 %r1, [index];
again:
    mov.u64 %rd4, %clock64;
    sub.s64 %rd5, %rd4, %rd2;
    setp.lt.u64 %p1, %rd5, %rd3;
    @%p1 bra again;
    mov.u64 %rd6, gpufence_paces;
    mul.wide.u32 %rd7, %r1, 16;
    add.s64 %rd8, %rd6, %rd7;
    st.global.u64 [%rd8], %rd1;
    mov.u64 %rd5, %globaltimer;
    st.global.u64 [%rd8+8], %rd5;
    ret;
}
)";

struct Pace {
  unsigned long long begin_ns;
  unsigned long long end_ns;
};

struct Pacer {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr paces = 0;

  Pacer() {
    size_t bytes = 0;
    MUST(cuModuleLoadData(&module, kPaceKernel));
    MUST(cuModuleGetFunction(&function, module, "gpufence_pace"));
    MUST(cuModuleGetGlobal_v2(&paces, &bytes, module, "gpufence_paces"));
    if (bytes != kPaces * sizeof(Pace)) exit(2);
    MUST(cuMemsetD8_v2(paces, 0, bytes));
    MUST(cuCtxSynchronize());
  }

  void Launch(CUstream stream, unsigned index, unsigned long long cycles = kCycles,
              unsigned blocks = 1) const {
    void* params[] = {&cycles, &index};
    MUST(cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  }

  Pace Read(unsigned index) const {
    Pace pace = {};
    MUST(cuMemcpyDtoH_v2(&pace, paces + index * sizeof pace, sizeof pace));
    return pace;
  }
};

void Tell(Facts& facts, const char* name, unsigned long long from_ns, unsigned long long to_ns) {
  facts.Say(name, static_cast<double>(to_ns) - static_cast<double>(from_ns));
}

void Paces(const Gpu& gpu, const Pacer& pacer, Facts& facts) {
  CUstream stream = NewStream();
  CUevent before = Mark(stream);
  MUST(gpu.Spin(stream, kMs));
  pacer.Launch(stream, 0);
  pacer.Launch(stream, 1, 7'000);
  pacer.Launch(stream, kPaces);  // beyond what there is room for
  CUevent behind = Mark(stream);
  Pace copied[2] = {};
  MUST(cuMemcpyDtoHAsync_v2(copied, pacer.paces, sizeof copied, stream));
  MUST(cuStreamSynchronize(stream));
  Tell(facts, "first", copied[0].begin_ns, copied[0].end_ns);
  Tell(facts, "second", copied[1].begin_ns, copied[1].end_ns);
  Tell(facts, "between", copied[0].end_ns, copied[1].begin_ns);
  Tell(facts, "read again", copied[1].end_ns, pacer.Read(1).end_ns);
  facts.Say("all by events", ElapsedUs(before, behind) * 1e3);

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  pacer.Launch(stream, 2);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  facts.Say("captured", static_cast<double>(pacer.Read(2).end_ns));
  MUST(cuGraphLaunch(executable, stream));
  MUST(cuStreamSynchronize(stream));
  const Pace launched = pacer.Read(2);
  Tell(facts, "in a graph", launched.begin_ns, launched.end_ns);
  facts.Say("later than before", launched.begin_ns >= copied[1].end_ns ? 1 : 0);
}

// From the end of one to the begin of the other.
void TellBetween(Facts& facts, const char* name, const Pacer& pacer, unsigned first,
                 unsigned second) {
  Tell(facts, name, pacer.Read(first).end_ns, pacer.Read(second).begin_ns);
}

void InStreams(const Gpu& gpu, const Pacer& pacer, Facts& facts) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, kMs));
  pacer.Launch(stream, 0);
  Mark(stream);
  pacer.Launch(stream, 1);
  pacer.Launch(stream, 2, kCycles, 65'536);
  pacer.Launch(stream, 3, kCycles, 16'384);
  pacer.Launch(stream, 4);
  CUdeviceptr word = 0;
  MUST(cuMemAlloc_v2(&word, sizeof(cuuint32_t)));
  MUST(cuStreamWriteValue32_v2(stream, word, 1, 0));
  MUST(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  pacer.Launch(stream, 6);
  MUST(cuStreamSynchronize(stream));
  TellBetween(facts, "over an event", pacer, 0, 1);
  TellBetween(facts, "over a word", pacer, 4, 6);
  TellBetween(facts, "wide", pacer, 1, 2);
  TellBetween(facts, "less wide", pacer, 2, 3);
  TellBetween(facts, "behind a wide one", pacer, 3, 4);
  CUevent before = Mark(stream);
  pacer.Launch(stream, 5);
  facts.Say("alone by events", ElapsedUs(before, Mark(stream)) * 1e3);

  // The virtual clock stands still: the launch follows an end by nothing.
  pacer.Launch(stream, 6);
  MUST(cuStreamSynchronize(stream));
  pacer.Launch(stream, 7);
  MUST(cuStreamSynchronize(stream));
  TellBetween(facts, "launched at an end", pacer, 6, 7);
}

// A kernel that fills the GPU runs while another stream pauses.
void Beside(const Pacer& pacer, Facts& facts) {
  CUstream stream = NewStream();
  pacer.Launch(stream, 0, kCycles, kWholeGpu);
  pacer.Launch(NewStream(), 2, 1'000, kWholeGpu);
  pacer.Launch(stream, 1, kCycles, kWholeGpu);
  MUST(cuCtxSynchronize());
  TellBetween(facts, "own pause", pacer, 0, 1);
  Tell(facts, "other in it", pacer.Read(0).end_ns, pacer.Read(2).end_ns);
}

void InGraphs(const Gpu& gpu, const Pacer& pacer, Facts& facts) {
  CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  pacer.Launch(stream, 0);
  pacer.Launch(stream, 1);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(gpu.Spin(stream, kMs));
  pacer.Launch(stream, 2);
  Mark(stream);
  MUST(cuGraphLaunch(executable, stream));
  pacer.Launch(stream, 3);
  MUST(cuStreamSynchronize(stream));
  TellBetween(facts, "before a graph", pacer, 2, 0);
  TellBetween(facts, "in it", pacer, 0, 1);
  TellBetween(facts, "behind it", pacer, 1, 3);

  // Two steps, of which the second is a graph of two.
  CUgraph parent = nullptr;
  CUgraph first = nullptr;
  CUgraphNode before = nullptr;
  CUgraphNode behind = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  pacer.Launch(stream, 4);
  MUST(cuStreamEndCapture(stream, &first));
  MUST(cuGraphCreate(&parent, 0));
  MUST(cuGraphAddChildGraphNode(&before, parent, nullptr, 0, first));
  MUST(cuGraphAddChildGraphNode(&behind, parent, &before, 1, graph));
  MUST(cuGraphInstantiateWithFlags(&executable, parent, 0));
  MUST(cuGraphLaunch(executable, stream));
  MUST(cuStreamSynchronize(stream));
  TellBetween(facts, "before a child", pacer, 4, 0);
}

// Who unloads the module has nothing written any more.
void Unloaded(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  const Pacer pacer;
  MUST(gpu.Spin(stream, kMs));
  pacer.Launch(stream, 0);
  MUST(cuModuleUnload(pacer.module));
  facts.Code("unloaded", cuStreamSynchronize(stream));
}

}  // namespace

int main() {
  const Gpu gpu;
  const Pacer pacer;
  Facts facts;
  Paces(gpu, pacer, facts);
  InStreams(gpu, pacer, facts);
  Beside(pacer, facts);
  InGraphs(gpu, pacer, facts);
  Unloaded(gpu, facts);
  return 0;
}
