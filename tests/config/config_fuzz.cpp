// sources: config/*.cpp base/log.cpp base/forked.cpp
// flags: -fsanitize=address,undefined -fno-sanitize-recover=all -g
// Feeds mutated texts to every parser of lib/src/config and checks what must hold for any text.
//
//   config_fuzz FOLDER SECONDS SEED      prints {"rounds": N} for each target; crashes on a fault
//
// FOLDER receives the files of the targets that read files. LLVMFuzzerTestOneInput is libFuzzer's
// entry, for whoever links that instead of main.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "config/claims.h"
#include "config/device_limits.h"
#include "config/gpu_names.h"
#include "config/grammar.h"
#include "config/json.h"
#include "config/memory_files.h"
#include "config/options.h"
#include "config/vgpu_manager.h"

namespace {

using namespace gpufence;  // NOLINT: a test program of this library

std::string root_folder;

void Demand(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "does not hold: %s\n", what);
  abort();
}
#define DEMAND(condition) Demand(condition, #condition)

// Exactly as many bytes as the text has, so that reading one more is seen.
class Exact {
 public:
  explicit Exact(std::string_view text) : bytes_(new char[text.size()]), size_(text.size()) {
    if (size_ > 0) memcpy(bytes_.get(), text.data(), size_);
  }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

bool Inside(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

bool IsOneLine(const char* text) {
  for (; *text != '\0'; ++text) {
    if (*text < ' ' || *text > '~') return false;
  }
  return true;
}

void TryGrammars(std::string_view text) {
  constexpr uint64_t kLargest = uint64_t{INT64_MAX};
  Size size{};
  uint64_t amount = 0;
  uint32_t index = 0;
  uint8_t uuid[16];
  bool on = false;
  const Fault fault = ParseSize(text, &size);
  DEMAND(fault != Fault::kNone || size.amount <= kLargest);
  PartOf(UINT64_MAX, size.amount);
  DEMAND(ParsePercent(text, &amount) != Fault::kNone || amount <= 100 * kThousand);
  DEMAND(ParseRatio(text, &amount) != Fault::kNone || amount <= kLargest);
  DEMAND(ParseMegabytes(text, &amount) != Fault::kNone || amount <= kLargest);
  DEMAND(!ParseIndex(text, &index) || index < 10000);
  ParseSwitch(text, &on);
  ParseUuid(text, uuid);
  char why[200];
  DescribeFault(text, text, fault, why, sizeof why);
  char quoted[kQuoteBytes];
  Quote(text, quoted);
  DEMAND(IsOneLine(quoted));
  std::string_view key;
  FindOption(text, &key);
  FindFileOption(text, &key);
}

void TryJson(std::string_view text) {
  JsonNumbers json(text);
  std::string_view key;
  uint64_t number = 0;
  size_t members = 0;
  while (json.Next(&key, &number) == JsonNumbers::Step::kMember) {
    DEMAND(Inside(key, text));
    DEMAND(number <= uint64_t{INT64_MAX});
    DEMAND(++members <= text.size());
  }
}

void TryYaml(std::string_view text) {
  YamlEntry entries[] = {{{"memory_limit", "memoryLimit", ""}, false, {}},
                         {{"device_name", "target_device", "target_device_name"}, false, {}}};
  const size_t broken = ReadYamlMap(text, entries, 2);
  DEMAND(broken <= text.size());
  for (const YamlEntry& entry : entries) DEMAND(Inside(entry.scalar, text));
}

void TryRecord(std::string_view text) {
  VgpuRecord record{};
  if (ReadVgpuRecord(text, &record) != nullptr) return;
  DEMAND(Inside(record.pod_uid, text) && Inside(record.container, text));
  for (const VgpuDevice& device : record.devices) {
    if (!record.stable || !device.active) continue;
    DEMAND(!device.limits_memory || device.total_bytes <= uint64_t{INT64_MAX});
    DEMAND(!device.limits_cores || device.hard_percent <= 100);
  }
}

void Ignore(const char* text) { DEMAND(strlen(text) < 1024); }

void WriteFile(const char* path, std::string_view content) {
  FILE* file = fopen((root_folder + path).c_str(), "wb");
  DEMAND(file != nullptr);
  DEMAND(fwrite(content.data(), 1, content.size(), file) == content.size());
  fclose(file);
}

constexpr const char* kPaths[] = {"/overrideEnv",
                                  "/etc/gpufence/gpufence.conf",
                                  "/etc/vcuda/config.yaml",
                                  "/etc/vgpu-manager/config/vgpu.config",
                                  "/var/lib/alnair/workspace/limits",
                                  "/proc/1/environ",
                                  "/run/tensor-fusion/shm/shm"};

Claims* the_claims;
Scratch* the_scratch;

void CheckClaims(ConfigResult result, const Claims& claims, const char* why) {
  if (result == ConfigResult::kInvalid) {
    DEMAND(why[0] != '\0' && IsOneLine(why));
    return;
  }
  DEMAND(claims.count <= kMostClaims && claims.note_count <= kMostNotes);
  DeviceIdentity devices[2] = {};
  devices[0] = {{0x11}, 0, 0, uint64_t{80} << 30, false, false};
  devices[1] = {{0x22}, 1, 1, uint64_t{40} << 30, false, false};
  DeviceLimits limits[2];
  char text[400];
  LimitAndWarn(claims, devices, 2, limits, Ignore, text, sizeof text);
}

// Lines become variables; the first byte says which file the text is as well.
void TryEverything(std::string_view text) {
  if (text.empty()) return;
  const char* path = kPaths[static_cast<unsigned char>(text[0]) % std::size(kPaths)];
  WriteFile(path, text.substr(1));
  std::vector<std::string> lines;
  std::string line;
  for (const char character : text.substr(1)) {
    if (character == '\n' || character == '\0') {
      lines.push_back(line);
      line.clear();
    } else {
      line += character;
    }
  }
  lines.push_back(line);
  std::vector<char*> environment;
  for (std::string& each : lines) environment.push_back(each.data());
  environment.push_back(nullptr);
  char why[400] = "";
  const ConfigResult result = ReadClaimsFrom({root_folder.c_str(), environment.data(), false},
                                             the_scratch, the_claims, why, sizeof why);
  CheckClaims(result, *the_claims, why);
  remove((root_folder + path).c_str());
}

using Target = void (*)(std::string_view);
struct NamedTarget {
  const char* name;
  Target run;
  int share;  // of 100 rounds
};
constexpr NamedTarget kTargets[] = {{"grammars", TryGrammars, 34},
                                    {"json", TryJson, 22},
                                    {"yaml", TryYaml, 22},
                                    {"vgpu_config", TryRecord, 18},
                                    {"everything", TryEverything, 4}};

uint64_t random_state = 1;

uint64_t Random(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return below == 0 ? 0 : random_state % below;
}

std::string RecordSeed() {
  std::string record(8192, '\0');
  const uint32_t head[] = {0x56474346, 1, 2560, 16};
  memcpy(record.data(), head, sizeof head);
  for (int device = 0; device < 2; ++device) {
    char* at = record.data() + 512 + 128 * device;
    memcpy(at + 8, "GPU-22222222-2222-2222-2222-222222222222", 40);
    at[63] = 1;  // total: 2^56
    at[72] = 30;
    at[76] = 60;
    for (const int flag : {80, 88, 92, 96}) at[flag] = 1;
  }
  return record;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {
      "1.5gib",
      " 33.333333333 % ",
      "9223372036854775807",
      "0.000000001%",
      "1024 bytes",
      "GPU-11111111-1111-1111-1111-111111111111",
      "12.5%",
      "true",
      "{\"0\": 2147483648, \"GPU-11111111-1111-1111-1111-111111111111\" : 1}",
      "{}",
      "memory_limit: '20m' # x\nother:\n  - y\n\"device_name\": a#b\n",
      "---\nmemoryLimit: 1g\n",
      "\1memory_limit = 1g\nmemory_limit_0=50%\nlog_level = info\n",
      "\0CUDA_DEVICE_MEMORY_LIMIT_0=1g\nCUDA_MEM_LIMIT_1=\nMANAGER_VISIBLE_DEVICES=GPU-11111111-"
      "1111-1111-1111-111111111111,\nALNAIR_ID=a\nTF_LOG_LEVEL=a=debug,off\n",
      "\4vmem:1073741824\nALNAIR_ID=a\nCUDA_CORE_SOFT_LIMIT=60\n",
      std::string("\5GPUFENCE_MEMORY_LIMIT=1g\0TENSOR_FUSION_CUDA_MEM_LIMIT={\"0\":1}\0", 63),
      "\3" + RecordSeed(),
      RecordSeed()};
  for (size_t i = 0; i < kOptions.count; ++i) {
    seeds.push_back(std::string(1, static_cast<char>(i % 6)) + kOptions.rows[i].name + "_0=1g\n");
  }
  return seeds;
}

constexpr char kTelling[] = "0123456789.% =_#:'\"\\{}[],\n\r\t-+kKgGiIbB";

std::string Mutate(std::string text, const std::vector<std::string>& seeds) {
  const uint64_t changes = 1 + Random(6);
  for (uint64_t i = 0; i < changes; ++i) {
    const size_t at = Random(text.size() + 1);
    switch (Random(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(Random(256));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Random(8)));
        break;
      case 2:
        text.insert(at, 1, kTelling[Random(sizeof kTelling - 1)]);
        break;
      case 3:
        text.erase(at, 1 + Random(8));
        break;
      case 4:
        text.insert(at, text.substr(Random(text.size() + 1), Random(40)));
        break;
      case 5: {
        const std::string& other = seeds[Random(seeds.size())];
        text.insert(at, other.substr(Random(other.size() + 1), Random(60)));
        break;
      }
      default:
        text.insert(at, Random(300), static_cast<char>('0' + Random(10)));
    }
  }
  return text;
}

const NamedTarget& PickTarget() {
  int left = static_cast<int>(Random(100));
  for (const NamedTarget& target : kTargets) {
    left -= target.share;
    if (left < 0) return target;
  }
  return kTargets[0];
}

void MakeFolders() {
  for (const char* folder :
       {"", "/etc", "/etc/gpufence", "/etc/vcuda", "/etc/vgpu-manager", "/etc/vgpu-manager/config",
        "/var", "/var/lib", "/var/lib/alnair", "/var/lib/alnair/workspace", "/proc", "/proc/1",
        "/run", "/run/tensor-fusion", "/run/tensor-fusion/shm"}) {
    mkdir((root_folder + folder).c_str(), 0755);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Exact text({reinterpret_cast<const char*>(data) + 1, size - 1});
  kTargets[data[0] % 4].run(text.view());  // the fifth needs folders, which only main makes
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  root_folder = argv[1];
  random_state = strtoull(argv[3], nullptr, 10) * 2 + 1;
  MakeFolders();
  the_claims = static_cast<Claims*>(malloc(sizeof(Claims)));
  the_scratch = static_cast<Scratch*>(malloc(sizeof(Scratch)));
  std::vector<std::string> seeds = Seeds();
  const size_t first_seeds = seeds.size();
  uint64_t rounds[5] = {};
  const time_t end = time(nullptr) + atoi(argv[2]);
  while (time(nullptr) < end) {
    const NamedTarget& target = PickTarget();
    const std::string mutated = Mutate(seeds[Random(seeds.size())], seeds);
    target.run(Exact(mutated).view());
    ++rounds[&target - kTargets];
    // Some mutants live on, so that changes add up; none grows without end.
    if (Random(50) == 0 && mutated.size() < 12000) {
      if (seeds.size() < 4000) {
        seeds.push_back(mutated);
      } else {
        seeds[first_seeds + Random(seeds.size() - first_seeds)] = mutated;
      }
    }
  }
  printf("{");
  for (int i = 0; i < 5; ++i) {
    printf("%s\"%s\": %llu", i > 0 ? ", " : "", kTargets[i].name,
           static_cast<unsigned long long>(rounds[i]));
  }
  printf("}\n");
  free(the_claims);
  free(the_scratch);
  return 0;
}
