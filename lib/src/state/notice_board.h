// The notices of one GPU in the node folder: this container's own, and copies of its neighbours'.
// Each container writes a file of its own and reads the others' by system calls alone, so that a
// file that is cut short, replaced or damaged is an error, and never a signal. A page of each is
// mapped read-only, as an address for futexes: no code here or elsewhere reads through it.
//
// The words of a notice are in lib/layouts/shared_files.txt: its author alone writes them, and
// nobody trusts them. A container lives while a process of it holds the lock on its notice. Must
// not know turns.
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "shared_layouts.h"

namespace gpufence {

// What neighbours sleep on: the lower half of `began_us`, which changes with every turn.
inline constexpr size_t kNoticeFutexAt = offsetof(Notice, began_us);

inline uint64_t CheckOf(const Notice& notice) {
  const auto* words = reinterpret_cast<const uint64_t*>(&notice);
  uint64_t check = kNoticeVersion;
  for (size_t i = 0; i < offsetof(Notice, check) / sizeof(uint64_t); ++i) {
    check = (check ^ words[i]) * 0x9e3779b97f4a7c15u;
    check ^= check >> 29;
  }
  return check;
}

class NoticeBoard {
 public:
  static constexpr uint32_t kMost = 64;  // places; the own one is 0

  // Takes part on one GPU in `folder` as `author`: makes the notice, or joins the processes of the
  // container that did. Null with one clause in `why`; errno EEXIST: the name is another user's.
  // One thread at a time. In a forked child it first lets go of what the parent had open.
  static NoticeBoard* Open(const char* folder, uint64_t device, uint64_t author, char* why,
                           size_t why_bytes);
  static void Close(NoticeBoard* board);

  // One thread of the process at a time: false while another one is at it, and nobody waits. All
  // below but the futexes is for whoever entered.
  bool TryEnter() { return busy_.fetch_add(1, std::memory_order_acq_rel) == 0; }
  // False: another thread came meanwhile, perhaps with news that the own notice lacks, and this one
  // is still inside.
  bool TryLeave() {
    uint32_t alone = 1;
    return busy_.compare_exchange_strong(alone, 0, std::memory_order_acq_rel);
  }
  void Leave() { busy_.store(0, std::memory_order_release); }

  // Looks for new notices where the folder changed, or a while has passed. `place` gives an author
  // its place below kMost, or kMost where there is none. Also restores the own file's name.
  using Place = uint32_t (*)(void* context, uint64_t author);
  void LookAround(uint64_t now_ns, Place place, void* context);

  // Copies the notice in a place. False: nobody is there, or what is there is no notice.
  bool Read(uint32_t place, Notice* notice);
  uint64_t AuthorAt(uint32_t place) const { return neighbours_[place].author; }

  // Which job is at a place, as its notice told last; 0: none. Any thread.
  uint64_t JobAt(uint32_t place) const {
    return neighbours_[place].job.load(std::memory_order_relaxed);
  }

  // Whether the author lives, as the kernel said in the last 10 ms. Lets go of one that does not,
  // and removes its file where it may.
  bool Lives(uint32_t place, uint64_t now_ns);
  void Drop(uint32_t place);

  // Writes the own notice.
  void Post(Notice notice);
  uint64_t author() const { return author_; }

  // Any thread. Sleeps until the author at a place writes of another turn than the one that began
  // then, at most so long; naps where that cannot be told.
  void AwaitChange(uint32_t place, uint64_t began_us, uint64_t most_ns, uint32_t bits) const;
  // The same until it wakes everybody who sleeps on its notice.
  void AwaitNews(uint32_t place, uint64_t most_ns) const;
  // Wakes who sleeps on the notice at a place.
  static constexpr uint32_t kEverybody = UINT32_MAX;
  void Wake(uint32_t place, uint32_t bits) const;

 private:
  struct Neighbour {
    uint64_t author;  // 0: nobody
    int fd;
    uint64_t device;  // which file the descriptor was opened for
    uint64_t inode;
    std::atomic<const void*> page;
    std::atomic<uint64_t> began_us;  // as read, or written, last
    std::atomic<uint64_t> job;       // as read last
    uint64_t asked_ns;               // when the kernel was asked for its life
  };

  bool OpenOwn(char* why, size_t why_bytes);
  bool MakeOwn();
  bool HoldOwn(int fd);
  void KeepName();
  void CloseAll();
  void Consider(int folder, const char* name, Place place, void* context);
  void NameOf(uint64_t author, char name[NAME_MAX]) const;
  void PathOf(uint64_t author, char path[PATH_MAX]) const;

  std::atomic<uint32_t> busy_;  // who is inside, and who came meanwhile
  pid_t opener_;
  uint64_t device_;
  uint64_t author_;
  uint32_t clock_;           // ClockIdentity, as the name has it
  uint64_t folder_changed_;  // as of the last scan
  uint64_t scanned_ns_;
  uint64_t asked_ns_;  // when the folder was asked last
  bool saw_unfinished_;
  uint32_t opens_left_;
  Neighbour own_;
  Neighbour neighbours_[kMost];
  char folder_[PATH_MAX];
  NoticeBoard* next_;
};

}  // namespace gpufence
