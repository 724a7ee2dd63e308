// sources: config/*.cpp core/env.cpp core/log.cpp core/forked.cpp
// flags: -Wall
// Answers questions about limits with the library's own parsers and readers, one line of JSON each,
// so that Python can compare its own answers. Reads frames from stdin; a frame is a list of texts:
//
//   u32 number of texts, then for each: u32 length, bytes
//
//   ["grammar", NAME, TEXT]         one of the pure parsers
//   ["options"]                     the option table
//   ["elsewhere"]                   names of ours that other parts read
//   ["claims", ROOT, DEVICES, "NAME=TEXT"...]   DEVICES: "ordinal nvml uuid-hex total;..."
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "config/claims.h"
#include "config/fault.h"
#include "config/options.h"
#include "config/own_names.h"
#include "config/share.h"
#include "config/size.h"
#include "config/terms.h"
#include "config/uuid.h"
#include "core/log.h"

namespace {

using namespace gpufence;  // NOLINT: a test program of this library
using Texts = std::vector<std::string>;

bool ReadBytes(void* to, size_t bytes) { return fread(to, 1, bytes, stdin) == bytes; }

bool ReadFrame(Texts* texts) {
  uint32_t count = 0;
  if (!ReadBytes(&count, sizeof count)) return false;
  texts->clear();
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (!ReadBytes(&length, sizeof length)) return false;
    std::string text(length, '\0');
    if (length > 0 && !ReadBytes(text.data(), length)) return false;
    texts->push_back(text);
  }
  return true;
}

// JSON text; bytes outside ASCII as the code points of Latin-1.
std::string Json(std::string_view text) {
  std::string quoted = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\') {
      quoted += character;
    } else {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", byte);
      quoted += escape;
    }
  }
  return quoted + "\"";
}

std::string Hex(const uint8_t uuid[16]) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    snprintf(byte, sizeof byte, "%02x", uuid[i]);
    text += byte;
  }
  return text;
}

std::string Number(uint64_t number) { return std::to_string(number); }

void Grammar(const std::string& name, const std::string& text) {
  Fault fault = Fault::kNone;
  std::string answer;
  if (name == "size") {
    Size size{};
    fault = ParseSize(text, &size);
    answer = "[" + Number(size.amount) + "," + (size.percent_of_device ? "true" : "false") + "]";
  } else if (name == "percent" || name == "ratio" || name == "megabytes") {
    uint64_t amount = 0;
    if (name == "percent") fault = ParsePercent(text, &amount);
    if (name == "ratio") fault = ParseRatio(text, &amount);
    if (name == "megabytes") fault = ParseMegabytes(text, &amount);
    answer = Number(amount);
  } else if (name == "burst") {
    uint64_t ns = 0;
    fault = ParseBurst(text, &ns);
    answer = Number(ns);
  } else if (name == "weight" || name == "floor") {
    uint32_t amount = 0;
    fault = name == "weight" ? ParseWeight(text, &amount) : ParseFloor(text, &amount);
    answer = Number(amount);
  } else if (name == "priority") {
    CorePriority priority{};
    fault = ParsePriority(text, &priority);
    answer = Number(static_cast<uint64_t>(priority));
  } else if (name == "switch") {
    bool on = false;
    fault = ParseSwitch(text, &on);
    answer = on ? "true" : "false";
  } else if (name == "uuid") {
    uint8_t uuid[16] = {};
    fault = ParseUuid(text, uuid) ? Fault::kNone : Fault::kUuid;
    answer = "\"" + Hex(uuid) + "\"";
  }
  if (fault == Fault::kNone) {
    printf("{\"value\":%s}\n", answer.c_str());
    return;
  }
  char why[512];
  DescribeFault("X", text, fault, why, sizeof why);
  printf("{\"why\":%s}\n", Json(why).c_str());
}

void Options() {
  std::string list;
  for (size_t i = 0; i < kOptionCount; ++i) {
    const Option& option = kOptions[i];
    if (i > 0) list += ",";
    list += "[" + Json(option.name) + "," + Json(NameOf(option.dialect)) + "," +
            Number(static_cast<uint64_t>(option.setting)) + "," +
            Number(static_cast<uint64_t>(option.keys)) + "]";
  }
  printf("[%s]\n", list.c_str());
}

void Elsewhere() {
  std::string list;
  for (size_t i = 0; i < kOwnElsewhereCount; ++i) {
    list += (i > 0 ? "," : "") + Json(kOwnElsewhere[i]);
  }
  printf("[%s]\n", list.c_str());
}

std::string TermsAsJson(const CoreTerms& terms) {
  return "[" + Number(static_cast<uint64_t>(terms.priority)) + "," + Number(terms.weight) + "," +
         Number(terms.burst_ns) + "," + Number(terms.floor) + "]";
}

std::string ClaimsAsJson(const Claims& claims) {
  std::string list;
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (i > 0) list += ",";
    list += "[" + Number(static_cast<uint64_t>(claim.kind)) + "," +
            Number(static_cast<uint64_t>(claim.target)) + "," +
            (claim.percent_of_device ? "true" : "false") + "," + Number(claim.dialect) + "," +
            Number(claim.layer) + "," + Number(claim.index) + ",\"" + Hex(claim.uuid) + "\"," +
            Number(claim.amount) + "," + Json(claim.source) + "]";
  }
  std::string notes;
  for (size_t i = 0; i < claims.note_count; ++i) {
    notes += (i > 0 ? "," : "") + Json(claims.notes[i]);
  }
  return "\"claims\":[" + list + "],\"notes\":[" + notes +
         "],\"scope\":" + Json(claims.process_scope ? "process" : "container") +
         ",\"container\":" + Json(claims.container) +
         ",\"state_folder\":" + Json(claims.state_folder) +
         ",\"node_folder\":" + Json(claims.node_folder) +
         ",\"device_name\":" + Json(claims.device_name) +
         ",\"hypervisor\":" + Json(claims.hypervisor) + ",\"log_file\":" + Json(claims.log_file) +
         ",\"log_is_daily\":" + (claims.log_is_daily ? "true" : "false") +
         ",\"terms\":" + TermsAsJson(claims.terms);
}

std::vector<DeviceIdentity> ParseDevices(const std::string& text) {
  std::vector<DeviceIdentity> devices;
  for (size_t at = 0; at < text.size(); at = text.find(';', at) + 1) {
    DeviceIdentity device{};
    char hex[33] = "";
    unsigned ordinal = 0;
    int nvml_index = 0;
    unsigned long long total_bytes = 0;
    if (sscanf(text.c_str() + at, "%u %d %32s %llu", &ordinal, &nvml_index, hex, &total_bytes) !=
        4) {
      abort();
    }
    for (int i = 0; i < 16; ++i) {
      unsigned byte = 0;
      sscanf(hex + 2 * i, "%2x", &byte);
      device.uuid[i] = static_cast<uint8_t>(byte);
    }
    device.ordinal = ordinal;
    device.nvml_index = nvml_index;
    device.total_bytes = total_bytes;
    devices.push_back(device);
  }
  return devices;
}

std::string* warnings;

void Warn(const char* text) {
  if (!warnings->empty()) *warnings += ",";
  *warnings += Json(text);
}

const char* NameOf(ConfigResult result) {
  constexpr const char* kNames[] = {"nothing", "limits", "invalid"};
  return kNames[static_cast<int>(result)];
}

std::string LimitsAsJson(const DeviceLimits& limits) {
  return "[" + Number(limits.memory_bytes) + "," + Json(limits.memory_source) + "," +
         Number(limits.core_millipercent) + "," + Number(limits.core_soft_millipercent) + "," +
         Number(limits.oversubscribe) + "," + Json(limits.core_source) + "," +
         Json(limits.core_soft_source) + "," + Json(limits.oversubscribe_source) + "]";
}

const char* EnabledLevel() {
  constexpr const char* kNames[] = {"error", "warn", "info", "debug", "trace"};
  const char* level = "off";
  for (int i = 0; i < 5 && LogEnabled(static_cast<LogLevel>(i)); ++i) level = kNames[i];
  return level;
}

void ReadAndResolve(const Texts& texts, Claims* claims, Scratch* scratch) {
  std::vector<char*> environment;
  for (size_t i = 3; i < texts.size(); ++i) {
    environment.push_back(const_cast<char*>(texts[i].c_str()));
  }
  environment.push_back(nullptr);
  char why[512] = "";
  SuggestLogLevel(LogLevel::kWarn);
  const ConfigResult read = ReadClaimsFrom({texts[1].c_str(), environment.data(), false}, scratch,
                                           claims, why, sizeof why);
  printf("{\"read\":\"%s\",\"log\":\"%s\"", NameOf(read), EnabledLevel());
  if (read == ConfigResult::kInvalid) {
    printf(",\"why\":%s}\n", Json(why).c_str());
    return;
  }
  printf(",%s", ClaimsAsJson(*claims).c_str());
  const std::vector<DeviceIdentity> devices = ParseDevices(texts[2]);
  if (read == ConfigResult::kLimits && !devices.empty()) {
    std::string said;
    warnings = &said;
    std::vector<DeviceLimits> limits(devices.size());
    const ConfigResult resolved = ResolveAndWarn(*claims, devices.data(), devices.size(),
                                                 limits.data(), Warn, why, sizeof why);
    std::string list;
    for (const DeviceLimits& each : limits) list += (list.empty() ? "" : ",") + LimitsAsJson(each);
    if (resolved == ConfigResult::kInvalid) list.clear();
    printf(",\"resolved\":\"%s\",\"limits\":[%s],\"warnings\":[%s],\"why\":%s", NameOf(resolved),
           list.c_str(), said.c_str(), Json(why).c_str());
  }
  printf("}\n");
}

}  // namespace

int main() {
  auto* claims = static_cast<Claims*>(malloc(sizeof(Claims)));
  auto* scratch = static_cast<Scratch*>(malloc(sizeof(Scratch)));
  // What was there before must not matter.
  memset(static_cast<void*>(claims), 0xa5, sizeof *claims);
  memset(static_cast<void*>(scratch), 0xa5, sizeof *scratch);
  Texts texts;
  while (ReadFrame(&texts)) {
    if (texts.size() == 3 && texts[0] == "grammar") Grammar(texts[1], texts[2]);
    if (texts.size() == 1 && texts[0] == "options") Options();
    if (texts.size() == 1 && texts[0] == "elsewhere") Elsewhere();
    if (texts.size() >= 3 && texts[0] == "claims") ReadAndResolve(texts, claims, scratch);
    fflush(stdout);
  }
  free(claims);
  free(scratch);
  return 0;
}
