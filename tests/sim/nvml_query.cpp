// link: nvml
// What NVML says, as JSON:
//
//   nvml_query devices                     every device's marks, memory and figures
//   nvml_query processes INDEX ROOM        all four process lists, with room for so many
//   nvml_query utilization INDEX SEEN_US ROOM
//   nvml_query watch INDEX MS              the samples that appear within so many milliseconds
//   nvml_query misuse                      codes for wrong arguments, and what they leave written
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "driver_abi.h"

namespace {

constexpr unsigned kMost = 64;

template <typename Struct>
constexpr unsigned VersionOf(unsigned number) {
  return static_cast<unsigned>(sizeof(Struct)) | number << 24;
}

// Builds {"a": 1, "b": "x", ...} without any escaping: what NVML says needs none.
class Json {
 public:
  Json& Add(const char* name, unsigned long long value) { return Raw(name, std::to_string(value)); }
  Json& Add(const char* name, const char* value) {
    return Raw(name, "\"" + std::string(value) + "\"");
  }
  Json& Raw(const char* name, const std::string& json) {
    text_ += (text_.empty() ? "" : ", ") + ("\"" + std::string(name) + "\": ") + json;
    return *this;
  }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

std::string List(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return "[" + text + "]";
}

nvmlDevice_t DeviceAt(const char* index) {
  nvmlDevice_t device = nullptr;
  nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(atoi(index)), &device);
  return device;
}

// The index that a search for the device by this way leads to.
template <typename Search, typename Key>
unsigned Found(Search search, Key key) {
  nvmlDevice_t device = nullptr;
  unsigned index = kMost;
  if (search(key, &device) == NVML_SUCCESS) nvmlDeviceGetIndex(device, &index);
  return index;
}

void AddMarks(nvmlDevice_t device, Json* json) {
  char name[96] = "";
  char uuid[96] = "";
  char serial[30] = "";
  nvmlPciInfo_t pci{};
  unsigned minor = kMost;
  nvmlDeviceGetName(device, name, sizeof name);
  nvmlDeviceGetUUID(device, uuid, sizeof uuid);
  nvmlDeviceGetSerial(device, serial, sizeof serial);
  nvmlDeviceGetPciInfo_v3(device, &pci);
  nvmlDeviceGetMinorNumber(device, &minor);
  json->Add("name", name).Add("uuid", uuid).Add("serial", serial).Add("minor", minor);
  json->Add("bus_id", pci.busId).Add("bus_id_legacy", pci.busIdLegacy);
  json->Add("by_uuid", Found(&nvmlDeviceGetHandleByUUID, uuid));
  json->Add("by_serial", Found(&nvmlDeviceGetHandleBySerial, serial));
  json->Add("by_bus_id", Found(&nvmlDeviceGetHandleByPciBusId_v2, pci.busId));
  json->Add("by_bus_id_legacy", Found(&nvmlDeviceGetHandleByPciBusId, pci.busIdLegacy));
}

void AddMemory(nvmlDevice_t device, Json* json) {
  nvmlMemory_t v1{};
  nvmlMemory_v2_t v2{};
  v2.version = VersionOf<nvmlMemory_v2_t>(2);
  nvmlBAR1Memory_t bar1{};
  json->Add("v1", nvmlDeviceGetMemoryInfo(device, &v1));
  json->Add("v2", nvmlDeviceGetMemoryInfo_v2(device, &v2));
  json->Add("bar1", nvmlDeviceGetBAR1MemoryInfo(device, &bar1));
  json->Add("total", v1.total).Add("free", v1.free).Add("used", v1.used);
  json->Add("v2_total", v2.total).Add("v2_free", v2.free).Add("v2_used", v2.used);
  json->Add("reserved", v2.reserved);
  json->Add("bar1_total", bar1.bar1Total).Add("bar1_free", bar1.bar1Free);
  json->Add("bar1_used", bar1.bar1Used);
}

std::string Devices() {
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  std::vector<std::string> devices;
  for (unsigned index = 0; index < count; ++index) {
    nvmlDevice_t device = DeviceAt(std::to_string(index).c_str());
    Json json;
    AddMarks(device, &json);
    AddMemory(device, &json);
    devices.push_back(json.str());
  }
  return List(devices);
}

template <typename Info>
std::string ProcessList(nvmlReturn_t rc, unsigned count, unsigned room,
                        const std::vector<Info>& infos) {
  std::vector<std::string> entries;
  for (unsigned i = 0; rc == NVML_SUCCESS && i < count && i < room; ++i) {
    entries.push_back(Json().Add("pid", infos[i].pid).Add("bytes", infos[i].usedGpuMemory).str());
  }
  return Json().Add("rc", rc).Add("count", count).Raw("list", List(entries)).str();
}

template <typename Info>
std::string AskList(nvmlReturn_t (*function)(nvmlDevice_t, unsigned*, Info*), nvmlDevice_t device,
                    unsigned room) {
  std::vector<Info> infos(kMost);
  unsigned count = room;
  const nvmlReturn_t rc = function(device, &count, room == 0 ? nullptr : infos.data());
  return ProcessList(rc, count, room, infos);
}

std::string Processes(nvmlDevice_t device, unsigned room) {
  Json json;
  json.Raw("v1", AskList(&nvmlDeviceGetComputeRunningProcesses, device, room));
  json.Raw("v2", AskList(&nvmlDeviceGetComputeRunningProcesses_v2, device, room));
  json.Raw("v3", AskList(&nvmlDeviceGetComputeRunningProcesses_v3, device, room));
  json.Raw("graphics", AskList(&nvmlDeviceGetGraphicsRunningProcesses_v3, device, room));
  std::vector<nvmlProcessDetail_v1_t> infos(kMost);
  nvmlProcessDetailList_t detail{};
  detail.version = VersionOf<nvmlProcessDetailList_v1_t>(1);
  detail.numProcArrayEntries = room;
  detail.procArray = room == 0 ? nullptr : infos.data();
  const nvmlReturn_t rc = nvmlDeviceGetRunningProcessDetailList(device, &detail);
  json.Raw("detail", ProcessList(rc, detail.numProcArrayEntries, room, infos));
  return json.str();
}

template <typename Sample>
std::string Samples(nvmlReturn_t rc, unsigned count, unsigned room,
                    const std::vector<Sample>& samples) {
  std::vector<std::string> entries;
  for (unsigned i = 0; rc == NVML_SUCCESS && i < count && i < room; ++i) {
    entries.push_back(Json()
                          .Add("pid", samples[i].pid)
                          .Add("sm", samples[i].smUtil)
                          .Add("us", samples[i].timeStamp)
                          .str());
  }
  return Json().Add("rc", rc).Add("count", count).Raw("list", List(entries)).str();
}

std::string Utilization(nvmlDevice_t device, unsigned long long seen_us, unsigned room) {
  Json json;
  std::vector<nvmlProcessUtilizationSample_t> samples(kMost);
  unsigned count = room;
  nvmlReturn_t rc = nvmlDeviceGetProcessUtilization(device, room == 0 ? nullptr : samples.data(),
                                                    &count, seen_us);
  json.Raw("samples", Samples(rc, count, room, samples));
  std::vector<nvmlProcessUtilizationInfo_v1_t> infos(kMost);
  nvmlProcessesUtilizationInfo_t info{};
  info.version = VersionOf<nvmlProcessesUtilizationInfo_v1_t>(1);
  info.processSamplesCount = room;
  info.lastSeenTimeStamp = seen_us;
  info.procUtilArray = room == 0 ? nullptr : infos.data();
  rc = nvmlDeviceGetProcessesUtilizationInfo(device, &info);
  json.Raw("infos", Samples(rc, info.processSamplesCount, room, infos));
  nvmlUtilization_t rates{};
  json.Add("rc", nvmlDeviceGetUtilizationRates(device, &rates)).Add("gpu", rates.gpu);
  timeval now{};
  gettimeofday(&now, nullptr);
  json.Add("now_us", now.tv_sec * 1'000'000ull + static_cast<unsigned long long>(now.tv_usec));
  return json.str();
}

// Reads every sample once, as monitors do: with the time of the newest one seen so far.
std::string Watch(nvmlDevice_t device, int milliseconds) {
  std::vector<std::string> seen;
  unsigned long long last_us = 0;
  for (int passed = 0; passed < milliseconds; passed += 5) {
    nvmlSample_t samples[200];
    unsigned count = 200;
    nvmlValueType_t type{};
    if (nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, last_us, &type, &count,
                             samples) == NVML_SUCCESS) {
      for (unsigned i = 0; i < count; ++i) {
        last_us = samples[i].timeStamp;
        seen.push_back(Json().Add("us", last_us).Add("gpu", samples[i].sampleValue.uiVal).str());
      }
    }
    usleep(5000);
  }
  return List(seen);
}

void AddMisuseOfTexts(nvmlDevice_t device, Json* json) {
  char text[96];
  memset(text, 'z', sizeof text);
  json->Add("name into 22 bytes", nvmlDeviceGetName(device, text, 22));
  json->Add("written", static_cast<unsigned>(text[0] != 'z'));
  json->Add("name into 23 bytes", nvmlDeviceGetName(device, text, 23));
  json->Add("uuid into 40 bytes", nvmlDeviceGetUUID(device, text, 40));
  json->Add("uuid into 41 bytes", nvmlDeviceGetUUID(device, text, 41));
  json->Add("name into null", nvmlDeviceGetName(device, nullptr, 96));
  json->Add("name of null", nvmlDeviceGetName(nullptr, text, 96));
  json->Add("own name", nvmlSystemGetProcessName(static_cast<unsigned>(getpid()), text, 96));
  json->Add("own name tells", static_cast<unsigned>(strstr(text, "nvml_query") != nullptr));
  json->Add("name of nobody", nvmlSystemGetProcessName(0x7fffffff, text, 96));
}

void AddMisuseOfSearches(Json* json) {
  nvmlDevice_t found = nullptr;
  json->Add("index beyond", nvmlDeviceGetHandleByIndex_v2(99, &found));
  json->Add("unknown uuid", nvmlDeviceGetHandleByUUID("GPU-0", &found));
  json->Add("unknown serial", nvmlDeviceGetHandleBySerial("0", &found));
  json->Add("unknown bus", nvmlDeviceGetHandleByPciBusId_v2("00000000:FE:1F.0", &found));
  json->Add("no bus", nvmlDeviceGetHandleByPciBusId_v2("GPU", &found));
  json->Add("uuid null", nvmlDeviceGetHandleByUUID(nullptr, &found));
  json->Add("still nothing", static_cast<unsigned>(found == nullptr));
}

void AddMisuseOfStructs(nvmlDevice_t device, Json* json) {
  nvmlMemory_v2_t memory{};
  memory.used = 77;
  json->Add("memory without version", nvmlDeviceGetMemoryInfo_v2(device, &memory));
  memory.version = VersionOf<nvmlMemory_t>(2);
  json->Add("memory of other size", nvmlDeviceGetMemoryInfo_v2(device, &memory));
  json->Add("memory untouched", static_cast<unsigned>(memory.used == 77));
  nvmlProcessesUtilizationInfo_t info{};
  json->Add("utilization without version", nvmlDeviceGetProcessesUtilizationInfo(device, &info));
  nvmlPciInfoExt_t pci{};
  json->Add("pci without version", nvmlDeviceGetPciInfoExt(device, &pci));
  pci.version = VersionOf<nvmlPciInfoExt_v1_t>(1);
  json->Add("pci", nvmlDeviceGetPciInfoExt(device, &pci)).Add("pci class", pci.baseClass);
  unsigned count = 1;
  json->Add("list without buffer",
            nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr));
  // Older callers bring shorter structs: nothing may be written behind their end.
  nvmlPciInfo_t shorter;
  memset(&shorter, 'z', sizeof shorter);
  json->Add("pci v2", nvmlDeviceGetPciInfo_v2(device, &shorter));
  json->Add("pci v2 keeps to 36 bytes", static_cast<unsigned>(shorter.busId[0] == 'z'));
  memset(&shorter, 'z', sizeof shorter);
  json->Add("pci v1", nvmlDeviceGetPciInfo(device, &shorter));
  json->Add("pci v1 keeps to 32 bytes",
            static_cast<unsigned>(shorter.pciSubSystemId == 0x7a7a7a7a));
}

void AddRest(nvmlDevice_t device, Json* json) {
  nvmlEventSet_t set = nullptr;
  nvmlEventData_t event{};
  unsigned value = 7;
  unsigned other = 7;
  json->Add("event set", nvmlEventSetCreate(&set));
  json->Add("register", nvmlDeviceRegisterEvents(device, 8, set));
  json->Add("register unknown", nvmlDeviceRegisterEvents(device, 1ull << 40, set));
  json->Add("wait", nvmlEventSetWait_v2(set, &event, 1)).Add("free", nvmlEventSetFree(set));
  json->Add("fan", nvmlDeviceGetFanSpeed(device, &value));
  json->Add("mig", nvmlDeviceGetMigMode(device, &value, &other)).Add("mig is", value | other);
  json->Add("mig device", nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &device));
}

std::string Misuse() {
  Json json;
  unsigned count = 77;
  nvmlDevice_t device = DeviceAt("0");
  AddMisuseOfTexts(device, &json);
  AddMisuseOfSearches(&json);
  AddMisuseOfStructs(device, &json);
  AddRest(device, &json);
  json.Add("init again", nvmlInit_v2()).Add("shutdown", nvmlShutdown());
  json.Add("still up", nvmlDeviceGetCount_v2(&count)).Add("last shutdown", nvmlShutdown());
  count = 77;
  json.Add("down", nvmlDeviceGetCount_v2(&count)).Add("count untouched", count == 77);
  json.Add("shutdown too often", nvmlShutdown());
  return json.str();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  const nvmlReturn_t rc = nvmlInit_v2();
  std::string answer;
  if (rc != NVML_SUCCESS) {
    answer = Json().Add("nvmlInit_v2", rc).str();
  } else if (command == "devices") {
    answer = Devices();
  } else if (command == "misuse") {
    answer = Misuse();
  } else if (command == "processes" && argc == 4) {
    answer = Processes(DeviceAt(argv[2]), static_cast<unsigned>(atoi(argv[3])));
  } else if (command == "utilization" && argc == 5) {
    answer = Utilization(DeviceAt(argv[2]), strtoull(argv[3], nullptr, 10),
                         static_cast<unsigned>(atoi(argv[4])));
  } else if (command == "watch" && argc == 4) {
    answer = Watch(DeviceAt(argv[2]), atoi(argv[3]));
  } else {
    std::fprintf(stderr, "usage: nvml_query devices|misuse|processes|utilization|watch ...\n");
    return 2;
  }
  std::printf("%s\n", answer.c_str());
  return 0;
}
