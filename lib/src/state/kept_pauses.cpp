#include "state/kept_pauses.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/held_locks.h"
#include "state/owner.h"
#include "state/shared_file.h"

namespace gpufence {
namespace {

constexpr mode_t kMode = 0644;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr uid_t kRoot = 0;
constexpr uid_t kNobodyKnown = 65534;  // whoever has no number in this user namespace

uint64_t CheckOf(const KeptPauses& kept) {
  uint64_t words[offsetof(KeptPauses, check) / sizeof(uint64_t)];
  memcpy(words, &kept, sizeof words);
  uint64_t check = kKeptPausesVersion;
  for (const uint64_t word : words) {
    check = (check ^ word) * 0x9e3779b97f4a7c15u;
    check ^= check >> 29;
  }
  return check;
}

PauseNumbers WordsOf(const GpuPauses& pauses) {
  return {.launch_gap_ns = pauses.launch_gap_ns,
          .step_gap_ns = pauses.step_gap_ns,
          .marker_gap_ns = pauses.marker_gap_ns,
          .around_run_ns = pauses.around_run_ns,
          .queued_gap_ns = pauses.queued_gap_ns,
          .start_ns = pauses.start_ns,
          .end_marker_ns = pauses.end_marker_ns,
          .wide_gap_ns = pauses.wide_gap_ns};
}

GpuPauses PausesOf(const PauseNumbers& words) {
  return {.launch_gap_ns = words.launch_gap_ns,
          .step_gap_ns = words.step_gap_ns,
          .marker_gap_ns = words.marker_gap_ns,
          .around_run_ns = words.around_run_ns,
          .queued_gap_ns = words.queued_gap_ns,
          .start_ns = words.start_ns,
          .end_marker_ns = words.end_marker_ns,
          .wide_gap_ns = words.wide_gap_ns};
}

bool IsDriverName(const char* driver) {
  const size_t length = strnlen(driver, sizeof PausingGpu::driver);
  return length != 0 && length < sizeof PausingGpu::driver &&
         strspn(driver, "0123456789abcdefghijklmnopqrstuvwxyz.-") == length && driver[0] != '.';
}

bool PathOf(const char* folder, const PausingGpu& gpu, uid_t user, char path[PATH_MAX]) {
  char uuid[2 * sizeof gpu.uuid + 1];
  for (size_t i = 0; i < sizeof gpu.uuid; ++i) snprintf(&uuid[2 * i], 3, "%02x", gpu.uuid[i]);
  const int length = snprintf(path, PATH_MAX, "%s/gpufence-pauses%u-%s-%s-%u", folder,
                              kKeptPausesVersion, uuid, gpu.driver, static_cast<unsigned>(user));
  return length > 0 && length < PATH_MAX;
}

// Nobody but root and this user can have written it.
bool IsTrusted(const struct stat& found) {
  return S_ISREG(found.st_mode) && (found.st_mode & kOthersWrite) == 0 &&
         found.st_uid != kNobodyKnown && (found.st_uid == kRoot || found.st_uid == geteuid());
}

bool ReadFile(const char* path, const PausingGpu& gpu, GpuPauses* pauses) {
  const int fd = OpenBeyondStreams(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat found = {};
  KeptPauses kept = {};
  const bool is_read = fstat(fd, &found) == 0 && IsTrusted(found) &&
                       found.st_size == static_cast<off_t>(sizeof kept) &&
                       pread(fd, &kept, sizeof kept, 0) == sizeof kept;
  close(fd);
  if (!is_read || kept.magic != kKeptPausesMagic || kept.version != kKeptPausesVersion ||
      kept.check != CheckOf(kept) || memcmp(&kept.gpu, &gpu, sizeof gpu) != 0 ||
      !ArePlausible(PausesOf(kept.pauses))) {
    return false;
  }
  *pauses = PausesOf(kept.pauses);
  return true;
}

// Growing a file beyond RLIMIT_FSIZE is a fatal signal.
bool MayWrite(size_t bytes) {
  rlimit most = {};
  return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= bytes;
}

// Beside its place, and renamed: nobody ever reads half of one, and whoever is killed meanwhile
// leaves what was there.
bool WriteFile(const char* path, const KeptPauses& kept) {
  char draft[PATH_MAX];
  if (snprintf(draft, sizeof draft, "%s.%llx-%d.new", path,
               static_cast<unsigned long long>(OwnPidNamespace()), getpid()) >= PATH_MAX) {
    return false;
  }
  unlink(draft);
  const int fd = OpenBeyondStreams(draft, O_WRONLY | O_CREAT | O_EXCL, kMode);
  if (fd < 0) return false;
  const bool written = fchmod(fd, kMode) == 0 && pwrite(fd, &kept, sizeof kept, 0) == sizeof kept;
  close(fd);
  if (written && rename(draft, path) == 0) return true;
  unlink(draft);
  return false;
}

}  // namespace

bool ArePlausible(const GpuPauses& pauses) {
  // Of H100, H200, A100 and older ones. What has 0 may be too short for the GPU's clock to tell;
  // what the host has a part in is as long as a slow host takes.
  struct Span {
    uint32_t ns;
    uint32_t least_ns;
    uint32_t most_ns;
  };
  const Span spans[] = {
      {pauses.launch_gap_ns, 340, 12'000}, {pauses.step_gap_ns, 140, 8'000},
      {pauses.marker_gap_ns, 250, 20'000}, {pauses.around_run_ns, 200, 20'000},
      {pauses.queued_gap_ns, 400, 20'000}, {pauses.start_ns, 400, 60'000},
      {pauses.end_marker_ns, 0, 20'000},   {pauses.wide_gap_ns, 0, 8'000},
  };
  for (const Span& span : spans) {
    if (span.ns < span.least_ns || span.ns > span.most_ns) return false;
  }
  return true;
}

bool ReadKeptPauses(const char* const* folders, const PausingGpu& gpu, GpuPauses* pauses) {
  if (!IsDriverName(gpu.driver)) return false;
  const uid_t users[] = {geteuid(), kRoot};
  for (; *folders != nullptr; ++folders) {
    if (**folders == '\0') continue;
    for (const uid_t user : users) {
      char path[PATH_MAX];
      if (PathOf(*folders, gpu, user, path) && ReadFile(path, gpu, pauses)) return true;
    }
  }
  return false;
}

bool KeepPauses(const char* const* folders, const PausingGpu& gpu, const GpuPauses& pauses,
                uint64_t now_s) {
  if (!IsDriverName(gpu.driver) || !MayWrite(sizeof(KeptPauses))) return false;
  KeptPauses kept = {.magic = kKeptPausesMagic,
                     .version = kKeptPausesVersion,
                     .reserved = 0,
                     .gpu = gpu,
                     .measured_s = now_s,
                     .pauses = WordsOf(pauses),
                     .check = 0};
  kept.check = CheckOf(kept);
  for (; *folders != nullptr; ++folders) {
    char path[PATH_MAX];
    if (**folders == '\0' || !PathOf(*folders, gpu, geteuid(), path)) continue;
    if (WriteFile(path, kept)) return true;
  }
  return false;
}

}  // namespace gpufence
