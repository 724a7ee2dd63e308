// link: cuda
// flags: -Wl,-z,lazy
// Facts: memory and events shared between two processes through IPC handles.

#include <cstring>
#include <string>

#include "child.h"
#include "gpu.h"

namespace conformance {
namespace {

constexpr size_t kSharedBytes = 6 * kMib;

template <typename Handle>
std::string ToText(const Handle& handle) {
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&handle);
  for (size_t i = 0; i < sizeof handle; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    text += two;
  }
  return text;
}

template <typename Handle>
Handle FromText(const std::string& text) {
  Handle handle{};
  auto* bytes = reinterpret_cast<unsigned char*>(&handle);
  for (size_t i = 0; i < sizeof handle && 2 * i + 1 < text.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

// The second process and what it has opened.
struct Importer {
  CUdeviceptr memory = 0;
  CUdeviceptr again = 0;
  size_t free_before = FreeBytes();

  std::string Answer(const std::string& verb, const std::string& handle);
  std::string AboutEvent(const std::string& handle) const;
};

std::string Importer::Answer(const std::string& verb, const std::string& handle) {
  if (verb == "open") {
    free_before = FreeBytes();
    return Name(cuIpcOpenMemHandle_v2(&memory, FromText<CUipcMemHandle>(handle), 1));
  }
  if (verb == "open-flagless") {
    return Name(cuIpcOpenMemHandle_v2(&again, FromText<CUipcMemHandle>(handle), 0));
  }
  if (verb == "open-again") {
    const CUresult code = cuIpcOpenMemHandle_v2(&again, FromText<CUipcMemHandle>(handle), 1);
    return Name(code) + (again == memory ? " same address" : " another address");
  }
  if (verb == "taken") return std::to_string(DroppedSince(free_before));
  if (verb == "range") {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const CUresult code = cuMemGetAddressRange_v2(&base, &bytes, memory);
    return Name(code) + " " + std::to_string(bytes);
  }
  if (verb == "fill") {
    const CUresult code = cuMemsetD8_v2(memory, 0x5c, kSharedBytes);
    cuCtxSynchronize();
    return Name(code);
  }
  if (verb == "free") return Name(cuMemFree_v2(memory));
  if (verb == "close") return Name(cuIpcCloseMemHandle(memory));
  if (verb == "export-again") {
    CUipcMemHandle exported{};
    return Name(cuIpcGetMemHandle(&exported, memory));
  }
  return verb == "event" ? AboutEvent(handle) : "what?";
}

std::string Importer::AboutEvent(const std::string& handle) const {
  CUevent event = nullptr;
  std::string answer = Name(cuIpcOpenEventHandle(&event, FromText<CUipcEventHandle>(handle)));
  answer += " " + Name(cuEventQuery(event));
  answer += " " + Name(cuEventSynchronize(event));
  return answer + " " + Name(cuEventDestroy_v2(event));
}

// Answers one line to each line "VERB HANDLE" until told to end.
int Import() {
  alarm(60);
  cuInit(0);
  UsePrimary(0);
  Importer importer;
  for (std::string line = HearParent(); !line.empty() && line != "end"; line = HearParent()) {
    const size_t space = line.find(' ');
    Tell(importer.Answer(line.substr(0, space), line.substr(space + 1)));
  }
  return 0;
}

void Exporting(Facts& facts) {
  CUipcMemHandle handle{};
  CUipcMemHandle same{};
  CUdeviceptr memory = 0;
  CUdeviceptr opened = 0;
  cuMemAlloc_v2(&memory, kSharedBytes);
  facts.Code("export", cuIpcGetMemHandle(&handle, memory));
  facts.Code("export.again", cuIpcGetMemHandle(&same, memory));
  facts.Is("export.again_is_equal", std::memcmp(&handle, &same, sizeof handle) == 0);
  facts.Code("export.interior", cuIpcGetMemHandle(&same, memory + kMib));
  facts.Code("export.garbage", cuIpcGetMemHandle(&same, 0x1000));
  facts.Code("open.in_exporter", cuIpcOpenMemHandle_v2(&opened, handle, 1));
  facts.Code("close.not_opened", cuIpcCloseMemHandle(memory));
  cuMemFree_v2(memory);
  cuMemAllocManaged(&memory, kMib, CU_MEM_ATTACH_GLOBAL);
  facts.Code("export.managed", cuIpcGetMemHandle(&same, memory));
  cuMemFree_v2(memory);
  cuMemAllocAsync(&memory, kMib, nullptr);
  facts.Code("export.stream_ordered", cuIpcGetMemHandle(&same, memory));
  cuMemFreeAsync(memory, nullptr);
  void* host = nullptr;
  cuMemHostAlloc(&host, 4096, 0);
  facts.Code("export.host", cuIpcGetMemHandle(&same, reinterpret_cast<CUdeviceptr>(host)));
  cuMemFreeHost(host);
}

void TwoProcesses(Facts& facts) {
  CUdeviceptr memory = 0;
  CUipcMemHandle handle{};
  cuMemAlloc_v2(&memory, kSharedBytes);
  cuMemsetD8_v2(memory, 0, kSharedBytes);
  cuIpcGetMemHandle(&handle, memory);
  cuCtxSynchronize();
  Child child({"importer"});
  const auto ask = [&](const std::string& line) {
    child.Say(line);
    return child.Hear();
  };
  const std::string text = ToText(handle);
  facts.Text("import.garbage", ask("open " + std::string(128, '7')));
  facts.Text("import.without_flag", ask("open-flagless " + text));
  facts.Text("import.open", ask("open " + text));
  facts.Text("import.takes", ask("taken -"));
  facts.Text("import.open_again", ask("open-again " + text));
  facts.Text("import.range", ask("range -"));
  facts.Text("import.fill", ask("fill -"));
  unsigned char last = 0;
  cuMemcpyDtoH_v2(&last, memory + kSharedBytes - 1, 1);
  facts.Is("import.exporter_sees_the_fill", last == 0x5c);
  facts.Text("import.free", ask("free -"));
  facts.Text("import.export_again", ask("export-again -"));
  facts.Text("import.close", ask("close -"));
  facts.Text("import.close_second", ask("close -"));
  facts.Text("import.close_too_often", ask("close -"));
  ask("open " + text);
  const size_t before = FreeBytes();
  facts.Code("exporter.free_while_imported", cuMemFree_v2(memory));
  facts.Number("exporter.free_while_imported_returns", -DroppedSince(before));
  facts.Text("import.fill_after_exporters_free", ask("fill -"));
  facts.Text("import.close_after_exporters_free", ask("close -"));
  facts.Number("exporter.closed_returns", -DroppedSince(before));
  facts.Text("import.open_freed", ask("open " + text));
  child.Say("end");
  facts.Text("import.ends", child.Wait());
}

void Events(Facts& facts) {
  CUipcEventHandle handle{};
  CUevent plain = nullptr;
  CUevent shared = nullptr;
  cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING);
  facts.Code("event.export_plain", cuIpcGetEventHandle(&handle, plain));
  cuEventDestroy_v2(plain);
  facts.Code("event.create",
             cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  facts.Code("event.export", cuIpcGetEventHandle(&handle, shared));
  const Kernels kernels = LoadKernels();
  LaunchSpin(kernels, nullptr, 1000);
  cuCtxSynchronize();
  Child child({"importer"});
  child.Say("taken -");  // answered once it has a context, so that the kernel below outlasts it
  child.Hear();
  LaunchSpin(kernels, nullptr, 400'000'000);
  cuEventRecord(shared, nullptr);
  child.Say("event " + ToText(handle));
  facts.Text("event.open_query_wait_destroy", child.Hear());
  facts.Code("event.done_when_other_waited", cuEventQuery(shared));
  child.Say("end");
  child.Wait();
  cuEventDestroy_v2(shared);
}

}  // namespace
}  // namespace conformance

int main(int argc, char**) {
  using namespace conformance;
  if (argc > 1) return Import();
  Facts facts("ipc");
  UsePrimary(FirstDevice(facts));
  Exporting(facts);
  TwoProcesses(facts);
  Events(facts);
  return 0;
}
