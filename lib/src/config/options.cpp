#include "config/options.h"

#include "config/text.h"

namespace gpufence {

using enum Dialect;
using enum Setting;

constexpr Option kOptions[] = {
    {"GPUFENCE_MEMORY_LIMIT", kGpufence, kMemory, Keys::kIndexOrUuid},
    {"GPUFENCE_CORE_LIMIT", kGpufence, kCores, Keys::kIndexOrUuid},
    {"GPUFENCE_CORE_SOFT_LIMIT", kGpufence, kSoftCores, Keys::kIndexOrUuid},
    {"GPUFENCE_CORE_POLICY", kGpufence, kCorePolicy, Keys::kNone},
    {"GPUFENCE_PRIORITY", kGpufence, kPriority, Keys::kNone},
    {"GPUFENCE_WEIGHT", kGpufence, kWeight, Keys::kNone},
    {"GPUFENCE_CORE_BURST", kGpufence, kCoreBurst, Keys::kNone},
    {"GPUFENCE_CORE_FLOOR", kGpufence, kCoreFloor, Keys::kNone},
    {"GPUFENCE_OVERSUBSCRIBE", kGpufence, kOversubscribe, Keys::kIndexOrUuid},
    {"GPUFENCE_SCOPE", kGpufence, kScope, Keys::kNone},
    {"GPUFENCE_STATE_DIR", kGpufence, kStateFolder, Keys::kNone},
    {"GPUFENCE_NODE_DIR", kGpufence, kNodeFolder, Keys::kNone},
    {"GPUFENCE_CONTAINER", kGpufence, kContainer, Keys::kNone},
    {"GPUFENCE_CONFIG", kGpufence, kConfigFile, Keys::kNone},
    {"GPUFENCE_LOG_LEVEL", kGpufence, kLogLevel, Keys::kNone},
    {"GPUFENCE_LOG_FILE", kGpufence, kLogFile, Keys::kNone},
    {"GPUFENCE_DISABLE", kGpufence, kDisable, Keys::kNone},

    {"CUDA_DEVICE_MEMORY_LIMIT", kHami, kMemory, Keys::kIndex},
    {"CUDA_DEVICE_SM_LIMIT", kHami, kCores, Keys::kIndex},
    {"GPU_CORE_UTILIZATION_POLICY", kHami, kCorePolicy, Keys::kNone},
    {"CUDA_OVERSUBSCRIBE", kHami, kSpill, Keys::kNone},
    {"CUDA_TASK_PRIORITY", kHami, kPriority, Keys::kNone},
    {"LIBCUDA_LOG_LEVEL", kHami, kLogLevel, Keys::kNone},
    {"CUDA_DEVICE_MEMORY_SHARED_CACHE", kHami, kContainer, Keys::kNone},
    {"ACTIVE_OOM_KILLER", kHami, kIgnored, Keys::kNone},
    {"RECORD_KERNEL_INTERVAL", kHami, kIgnored, Keys::kNone},
    {"CUDA_REDIRECT", kHami, kIgnored, Keys::kNone},
    {"CUDA_DISABLE_CONTROL", kHami, kIgnored, Keys::kNone},

    {"CUDA_MEM_LIMIT", kVgpuManager, kMemory, Keys::kIndex},
    {"CUDA_MEM_RATIO", kVgpuManager, kRatio, Keys::kIndex},
    {"CUDA_MEM_OVERSOLD", kVgpuManager, kSpill, Keys::kIndex},
    {"CUDA_CORE_LIMIT", kVgpuManager, kCores, Keys::kIndex},
    {"CUDA_CORE_SOFT_LIMIT", kVgpuManager, kSoftCores, Keys::kIndex},
    {"MANAGER_VISIBLE_DEVICES", kVgpuManager, kHostDevices, Keys::kNone},
    {"MANAGER_VISIBLE_DEVICE", kVgpuManager, kHostDevice, Keys::kIndex},
    {"GPU_DEVICES_UUID", kVgpuManager, kOldHostDevices, Keys::kNone},
    {"NVIDIA_VISIBLE_DEVICES", kVgpuManager, kVisibleDevices, Keys::kNone},
    {"VGPU_POD_UID", kVgpuManager, kPodUid, Keys::kNone},
    {"VGPU_CONTAINER_NAME", kVgpuManager, kContainerName, Keys::kNone},
    {"LOGGER_LEVEL", kVgpuManager, kLogLevel, Keys::kNone},
    {"CUDA_MEM_UVA_ADVISE", kVgpuManager, kIgnored, Keys::kNone},
    {"VGPU_POD_NAME", kVgpuManager, kIgnored, Keys::kNone},
    {"VGPU_POD_NAMESPACE", kVgpuManager, kIgnored, Keys::kNone},
    {"MANAGER_COMPATIBILITY_MODE", kVgpuManager, kIgnored, Keys::kNone},
    {"ENV_COMPATIBILITY_MODE", kVgpuManager, kIgnored, Keys::kNone},
    {"MANAGER_CLIENT_REGISTER_UUID", kVgpuManager, kIgnored, Keys::kNone},
    {"MANAGER_VGPU_CLAIM_UID", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_CONTROLLER", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_DELTA_RAMP_FLOOR_DIVISOR", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AIMD_MD_DIVISOR", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AIMD_EFF_RATIO", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AIMD_AI_BASE_DIV", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AIMD_DEADBAND_RATIO", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AIMD_MD_COOLDOWN_CYCLES", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AUTO_DEBOUNCE_CYCLES", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_AUTO_EXTERNAL_UTIL_THRESHOLD", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_USAGE_THRESHOLD", kVgpuManager, kIgnored, Keys::kNone},
    {"CUDA_SM_SHARED_BUCKET", kVgpuManager, kIgnored, Keys::kNone},
    {"VMEMORY_NODE_ENABLED", kVgpuManager, kIgnored, Keys::kNone},
    {"EXTERNAL_SM_WATCHER_ENABLED", kVgpuManager, kIgnored, Keys::kNone},
    {"DISABLE_VGPU_CONTROL", kVgpuManager, kIgnored, Keys::kNone},

    {"VCUDA_MEMORY_LIMIT", kVcuda, kMemory, Keys::kNone},
    {"VCUDA_DEVICE_NAME", kVcuda, kDeviceName, Keys::kNone},
    {"VCUDA_LOG_LEVEL", kVcuda, kLogLevel, Keys::kNone},
    {"VCUDA_LOG_SINK", kVcuda, kLogSink, Keys::kNone},
    {"VCUDA_LOG_FILE", kVcuda, kLogFile, Keys::kNone},
    {"VCUDA_OVER_SUB_RATIO", kVcuda, kIgnored, Keys::kNone},

    {"TENSOR_FUSION_CUDA_MEM_LIMIT", kVgpuRs, kMemoryMap, Keys::kNone},
    {"TENSOR_FUSION_CUDA_UP_LIMIT", kVgpuRs, kCoresMap, Keys::kNone},
    {"TF_CUDA_MEMORY_LIMIT", kVgpuRs, kMemoryMegabytes, Keys::kNone},
    {"TF_GPU_MEMORY_LIMIT", kVgpuRs, kMemoryMegabytes, Keys::kNone},
    {"ENABLE_CUDA_HOOKS", kVgpuRs, kHooks, Keys::kNone},
    {"TF_ENABLE_LOG", kVgpuRs, kLogSwitch, Keys::kNone},
    {"TF_LOG_LEVEL", kVgpuRs, kLogLevel, Keys::kNone},
    {"TF_LOG_PATH", kVgpuRs, kLogFile, Keys::kNone},
    {"SHM_PATH", kVgpuRs, kSharedFolder, Keys::kNone},
    {"TF_SHM_FILE", kVgpuRs, kSharedFile, Keys::kNone},
    {"HYPERVISOR_IP", kVgpuRs, kHypervisorAddress, Keys::kNone},
    {"HYPERVISOR_PORT", kVgpuRs, kHypervisorPort, Keys::kNone},
    {"CONTAINER_NAME", kVgpuRs, kContainerName, Keys::kNone},
    {"TF_CUDA_LIB_PATH", kVgpuRs, kElsewhere, Keys::kNone},
    {"TF_NVML_LIB_PATH", kVgpuRs, kElsewhere, Keys::kNone},
    {"ENABLE_NVML_HOOKS", kVgpuRs, kIgnored, Keys::kNone},
    {"TF_SKIP_HOOKS_IF_NO_LIMIT", kVgpuRs, kIgnored, Keys::kNone},
    {"TF_VISIBLE_DEVICES", kVgpuRs, kIgnored, Keys::kNone},
    {"TF_REMAPPED", kVgpuRs, kIgnored, Keys::kNone},
    {"DISABLE_GPU_LIMITER", kVgpuRs, kIgnored, Keys::kNone},

    {"ALNAIR_ID", kAlnair, kId, Keys::kNone},
    {"ALNAIR_WORKSPACE_PATH", kAlnair, kWorkspace, Keys::kNone},
    {"ALNAIR_VGPU_COMPUTE_PERCENTILE", kAlnair, kCores, Keys::kNone},
    {"ALNAIR_SOCKET", kAlnair, kIgnored, Keys::kNone},

    {"NVIDIA_GPU_MEMORY_LIMIT", kNvidia, kMemoryMegabytes, Keys::kNone},
    {"NVIDIA_GPU_MEMORY_LIMITS", kNvidia, kMemoryMegabytes, Keys::kNone},
    {"NVIDIA_GPU_MEMORY_REQUEST", kNvidia, kIgnored, Keys::kNone},
    {"NVIDIA_GPU_MEMORY_REQUESTS", kNvidia, kIgnored, Keys::kNone},
};

constexpr size_t kOptionCount = sizeof kOptions / sizeof kOptions[0];

namespace {

constexpr std::string_view kOwnPrefix = "GPUFENCE_";

// The part of `name` behind `base`: nothing, or a key with its '_'. False: another name.
bool SplitKey(std::string_view name, std::string_view base, bool in_lower_case, Keys keys,
              std::string_view* key) {
  const std::string_view start = First(name, base.size());
  if (start.size() < base.size()) return false;
  for (size_t i = 0; i < base.size(); ++i) {
    if (start[i] != (in_lower_case ? Lower(base[i]) : base[i])) return false;
  }
  *key = After(name, base.size());
  if (key->empty()) return true;
  return keys != Keys::kNone && key->front() == '_';
}

}  // namespace

const char* NameOf(Dialect dialect) {
  constexpr const char* kNames[kDialectCount] = {
      "gpufence", "HAMi-core", "vgpu-manager", "vcuda-hook", "vgpu.rs", "Alnair", "NVIDIA"};
  return kNames[static_cast<size_t>(dialect)];
}

const Option* FindOption(std::string_view name, std::string_view* key) {
  for (const Option& option : kOptions) {
    if (name.empty() || name.front() != option.name[0]) continue;
    if (SplitKey(name, option.name, /*in_lower_case=*/false, option.keys, key)) return &option;
  }
  return nullptr;
}

bool IsInFile(const Option& option) {
  return option.dialect == kGpufence && option.setting != kConfigFile && option.setting != kDisable;
}

const Option* FindFileOption(std::string_view name, std::string_view* key) {
  for (const Option& option : kOptions) {
    if (!IsInFile(option)) continue;
    std::string_view base = option.name;
    base.remove_prefix(kOwnPrefix.size());
    if (SplitKey(name, base, /*in_lower_case=*/true, option.keys, key)) return &option;
  }
  return nullptr;
}

}  // namespace gpufence
