// Between a seat and the notices of its neighbours: what is read is copied, and believed as far as
// it can be; what is written is what the neighbours need (core_turns.cpp decides by it).
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/held_locks.h"
#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/gpu_time.h"
#include "policy/share.h"

namespace gpufence {
namespace {

constexpr uint64_t kNsInUs = 1000;

uint64_t DrawAuthor() {
  uint64_t drawn = 0;
  if (syscall(SYS_getrandom, &drawn, sizeof drawn, 0) != sizeof drawn) {
    drawn = reinterpret_cast<uint64_t>(&drawn) ^ static_cast<uint64_t>(getpid()) << 32;
  }
  return drawn != 0 ? drawn : 1;
}

bool IsAhead(uint64_t began_us, uint64_t now_ns) {
  return began_us > (now_ns + kClockSlackNs) / kNsInUs;
}

}  // namespace

// The author is the container's, and drawn by its first process: nobody can foretell it, so nobody
// else can have taken its name. One that somebody took later, while the container was away, is
// given up.
bool CoreSeat::Meet(const char* node_folder, char* why, size_t why_bytes) {
  constexpr int kAttempts = 2;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t author = 0;
    const uint64_t drawn = DrawAuthor();
    if (row().author.compare_exchange_strong(author, drawn, std::memory_order_acq_rel)) {
      author = drawn;
    }
    board_ = NoticeBoard::Open(node_folder, row().key.load(std::memory_order_relaxed), author, why,
                               why_bytes);
    if (board_ != nullptr) {
      signature_.author = author;
      return true;
    }
    if (errno != EEXIST || HasLivingSiblings(file_, place_)) return false;
    row().author.compare_exchange_strong(author, 0, std::memory_order_acq_rel);
  }
  return false;
}

void CoreSeat::Part() {
  if (board_ != nullptr) NoticeBoard::Close(board_);
  board_ = nullptr;
}

uint64_t CoreSeat::AuthorOf(uint32_t place) const {
  if (place == kOwnTenant) return board_->author();
  return file_.region->tenants[place_.row][place].key.load(std::memory_order_relaxed);
}

// ---- reading ----

// The place of a neighbour, which processes of the container agree on; kMaxCoreTenants: all are
// taken by others.
uint32_t CoreSeat::PlaceOf(uint64_t author, bool makes, uint64_t now_ns) {
  CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i != kOwnTenant && tenants[i].key.load(std::memory_order_relaxed) == author) return i;
  }
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  for (uint32_t i = 0; makes && i < kMaxCoreTenants; ++i) {
    if (i == kOwnTenant || i == turn.tenant) continue;
    uint64_t before = tenants[i].key.load(std::memory_order_relaxed);
    if (before != 0 && IsRecent(tenants[i].beat_ns.load(std::memory_order_relaxed), now_ns,
                                kTuning.remembered_ns)) {
      continue;
    }
    if (before != 0 && board_->AuthorAt(i) == before) continue;
    Word& key = tenants[i].key;
    if (!key.compare_exchange_strong(before, author, std::memory_order_acq_rel)) continue;
    tenants[i].beat_ns.store(0, std::memory_order_relaxed);
    tenants[i].active_ns.store(0, std::memory_order_relaxed);
    return i;
  }
  return kMaxCoreTenants;
}

void CoreSeat::CopyNotice(uint32_t place, const Notice& notice, uint64_t now_ns) {
  if (notice.beat_ns > now_ns + kClockSlackNs) return;
  const auto put = [](Word* word, uint64_t value) {
    if (word->load(std::memory_order_relaxed) != value) {
      word->store(value, std::memory_order_relaxed);
    }
  };
  CoreTenant* to = &file_.region->tenants[place_.row][place];
  const CoreShares shares = UnpackShares(notice.shares);
  put(&to->beat_ns, std::min(notice.beat_ns, now_ns));
  put(&to->wants_ns, notice.wants_ns);
  put(&to->idle_ns, notice.idle_ns);
  put(&to->ends_ns, notice.ends_ns);
  put(&to->due_ns, notice.due_ns);
  put(&to->served_ns, notice.served_ns);
  put(&to->active_ns,
      IsRecent(notice.active_ns, now_ns, UINT64_MAX) ? std::min(notice.active_ns, now_ns) : 0);
  const uint32_t hard = std::clamp(shares.hard, 1u, kWholeShare);
  put(&to->shares, PackShares({hard, std::clamp(shares.soft, hard, kWholeShare)}));
  put(&to->terms, notice.terms);
  put(&to->charged_ns, notice.charged_ns);
  // Whoever comes back has its share at once; but one that goes first anyway need not claim it.
  const bool claims_share =
      UnpackTerms(notice.terms).rank <= OwnTerms().rank &&
      !IsRecent(to->active_ns.load(std::memory_order_relaxed), now_ns, kTuning.lately_ns);
  NoteRate(to, claims_share ? hard : 0, now_ns);
  put(&to->quantum_ns, notice.quantum_ns);
  for (uint32_t i = 0; i < kNoticeRuns; ++i) put(&to->runs[i], notice.runs[i]);
}

// Of all turns that anybody tells of the latest one is it; of two that began in one microsecond
// that of the lower author, for everybody.
void CoreSeat::Believe(const Notice& notice, uint64_t now_ns) {
  if (IsAhead(notice.began_us, now_ns) || IsAlone(now_ns)) return;
  uint64_t word = row().turn.load(std::memory_order_acquire);
  const Turn seen = UnpackTurn(word);
  const uint64_t began_us = IsAhead(seen.began_us, now_ns) ? 0 : seen.began_us;
  Turn told = {kNoTenant, false, notice.began_us};
  if (notice.holder == board_->author()) {
    told.tenant = kOwnTenant;
  } else if (notice.holder != 0) {
    const uint32_t place = PlaceOf(notice.holder, /*makes=*/false, now_ns);
    if (place < kMaxCoreTenants) told.tenant = place;
  }
  if (told.began_us < began_us) return;
  if (told.began_us == began_us) {
    if (told.tenant == kNoTenant || told.tenant == seen.tenant) return;
    if (seen.tenant < kMaxCoreTenants && AuthorOf(seen.tenant) < notice.holder) return;
  }
  TenantView views[kMaxCoreTenants];
  if (seen.tenant == kOwnTenant) View({kNoTenant, false, 0}, now_ns, views);
  Change(&word, told, views, now_ns);
}

void CoreSeat::ReadNotices(uint64_t now_ns) {
  struct Context {
    CoreSeat* seat;
    uint64_t now_ns;
  } context = {this, now_ns};
  const auto place = [](void* given, uint64_t author) {
    const auto* asked = static_cast<const Context*>(given);
    return asked->seat->PlaceOf(author, /*makes=*/true, asked->now_ns);
  };
  board_->LookAround(now_ns, place, &context);
  CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const uint64_t author = board_->AuthorAt(i);
    if (author == 0) continue;
    if (tenants[i].key.load(std::memory_order_relaxed) != author) {
      board_->Drop(i);  // a sibling gave its place to another one
      continue;
    }
    Notice notice;
    if (board_->Read(i, &notice)) {
      CopyNotice(i, notice, now_ns);
      Believe(notice, now_ns);
    }
    const uint64_t beat_ns = tenants[i].beat_ns.load(std::memory_order_relaxed);
    if (!IsRecent(beat_ns, now_ns, kTuning.silent_ns) && !board_->Lives(i, now_ns)) {
      tenants[i].beat_ns.store(0, std::memory_order_relaxed);
    }
  }
}

// ---- waiting for too long ----

bool CoreSeat::IsAlone(uint64_t now_ns) const {
  const uint64_t alone_ns = row().alone_ns.load(std::memory_order_relaxed);
  return alone_ns > now_ns && alone_ns - now_ns <= kTuning.remembered_ns;
}

void CoreSeat::CountWait(uint64_t now_ns) {
  uint64_t counted_ns = row().counted_ns.load(std::memory_order_relaxed);
  if (!row().counted_ns.compare_exchange_strong(counted_ns, now_ns, std::memory_order_relaxed) ||
      counted_ns > now_ns) {
    return;
  }
  const TenantView own = OwnView(now_ns);
  const bool wants = own.wants_ns != 0 || own.idle_since_ns == 0;
  TurnWait wait = HasTurn() ? TurnWait::kHasTurn : TurnWait::kWaits;
  if (!wants || HeldForNs(own.due_ns, now_ns) > 0 || IsAlone(now_ns)) wait = TurnWait::kContent;
  uint64_t shares = own.share;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i == kOwnTenant || !IsRecent(tenants[i].active_ns.load(std::memory_order_relaxed), now_ns,
                                     kTuning.lately_ns)) {
      continue;
    }
    shares += UnpackShares(tenants[i].shares.load(std::memory_order_relaxed)).hard;
  }
  const uint64_t waited_ns = WaitedAfter(row().waited_ns.load(std::memory_order_relaxed),
                                         now_ns - counted_ns, wait, own.share, shares);
  if (waited_ns < kTuning.most_turn_wait_ns) {
    row().waited_ns.store(waited_ns, std::memory_order_relaxed);
    return;
  }
  row().waited_ns.store(0, std::memory_order_relaxed);
  if (wait == TurnWait::kContent) return;
  row().alone_ns.store(now_ns + kTuning.remembered_ns, std::memory_order_relaxed);
  row().turn.store(PackTurn({kOwnTenant, false, now_ns / kNsInUs}), std::memory_order_seq_cst);
}

// ---- writing ----

// While it goes without turns, it tells of none: the others take theirs as if it were not there.
void CoreSeat::PostNotice(uint64_t now_ns) {
  Notice notice = {};
  const CoreTenant& own = tenant();
  notice.idle_ns = 1;
  notice.shares = own.shares.load(std::memory_order_relaxed);
  notice.charged_ns = own.charged_ns.load(std::memory_order_relaxed);
  notice.terms = PackTerms(TermsNow(now_ns));
  notice.job = HasCollectives(now_ns) ? JobOf() : 0;
  static_assert(kNoticeRuns == kCoreRuns);
  for (uint32_t i = 0; i < kNoticeRuns; ++i) {
    notice.runs[i] = own.runs[i].load(std::memory_order_relaxed);
  }
  if (!IsAlone(now_ns)) {
    const Turn turn = UnpackTurn(row().turn.load(std::memory_order_acquire));
    const TenantView view = OwnView(now_ns);
    const bool begins = turn.tenant == kOwnTenant && !turn.closing && view.wants_ns != 0 &&
                        IsRecent(turn.began_us * kNsInUs, now_ns, kTuning.look_ns);
    notice.began_us = turn.began_us;
    notice.holder = turn.tenant < kMaxCoreTenants ? AuthorOf(turn.tenant) : 0;
    notice.wants_ns = view.wants_ns;
    notice.idle_ns = begins ? 0 : view.idle_since_ns;
    notice.ends_ns = view.ends_ns == kUnknownEnd ? 0 : view.ends_ns;
    notice.due_ns = view.due_ns;
    notice.served_ns = own.served_ns.load(std::memory_order_relaxed);
    notice.active_ns = own.active_ns.load(std::memory_order_relaxed);
    notice.quantum_ns = view.quantum_ns;
  }
  notice.beat_ns = posted_.beat_ns;
  if (memcmp(&notice, &posted_, sizeof notice) == 0 &&
      IsRecent(notice.beat_ns, now_ns, kTuning.look_ns)) {
    return;
  }
  notice.beat_ns = now_ns;
  board_->Post(notice);
  const bool is_news = (notice.idle_ns == 0) != (posted_.idle_ns == 0);
  __atomic_store_n(&tells_end_, notice.idle_ns != 0 ? 1u : 0u, __ATOMIC_RELAXED);
  posted_ = notice;
  if (is_news && HasInferior(now_ns)) board_->Wake(kOwnTenant, NoticeBoard::kEverybody);
}

// Once more for who came meanwhile and did not wait: or what it told would be known a look later.
void CoreSeat::PostAndLeave(uint64_t now_ns) {
  PostNotice(now_ns);
  if (board_->TryLeave()) return;
  PostNotice(now_ns);
  board_->Leave();
}

void CoreSeat::TellInferiors(uint64_t now_ns) {
  Beat(now_ns, /*outstanding=*/true);
  const bool tells_end = __atomic_load_n(&tells_end_, __ATOMIC_RELAXED) != 0;
  if (!CameBack(now_ns) && !tells_end) return;
  if (!board_->TryEnter()) return;  // whoever is inside does it
  const CountedLock counted;
  PostAndLeave(now_ns);
}

}  // namespace gpufence
