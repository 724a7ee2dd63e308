// link: state
// Random operations on the accounts of a few processes, each compared with a model that is nothing
// but sums: granted exactly when it fits, charged exactly what is held, zero at the end.
//
//   state_model FOLDER OPERATIONS SEED
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "state/holdings.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr size_t kProcesses = 12;
constexpr uint64_t kLimits[] = {96 * kMiB, 160 * kMiB, 256 * kMiB, kNoLimit};

struct Piece {
  uint64_t key;
  uint64_t bytes;
};

// What the model knows of one process.
struct Process {
  Member* member;
  uint64_t limit_bytes;
  uint64_t plain_bytes;
  uint64_t overhead_bytes;
  std::vector<Piece> linear;
  std::vector<uint64_t> plain;

  uint64_t Held() const { return plain_bytes + overhead_bytes; }
};

class World {
 public:
  World(const char* folder, uint64_t seed) : folder_(folder), random_(seed) {
    processes_.resize(kProcesses);
    for (Process& process : processes_) Start(&process);
  }

  void Step() {
    Process* process = &processes_[random_.Below(kProcesses)];
    switch (random_.Below(20)) {
      case 0:
        return ReservePlain(process);
      case 1:
        return ReleasePlain(process);
      case 2:
        return ChangeOverhead(process);
      case 3:
        return random_.Below(2000) == 0 ? Restart(process) : Compare();
      case 4:
      case 5:
      case 6:
        return TouchHoldings();
      case 7:
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        return ReserveLinear(process);
      default:
        return ReleaseLinear(process);
    }
  }

  void Finish() {
    for (Process& process : processes_) {
      while (!process.linear.empty()) ReleaseLinear(&process);
      while (!process.plain.empty()) ReleasePlain(&process);
      SetOverhead(&process, 0);
      CHECK_EQ(process.member->account.charged_bytes(), 0);
    }
    Compare();
    CHECK_EQ(Living(), 0);
  }

  uint64_t refused() const { return refused_; }
  uint64_t granted() const { return granted_; }

 private:
  void Start(Process* process) {
    *process = {};
    process->limit_bytes = kLimits[random_.Below(4)];
    process->member = NewMember(folder_, process->limit_bytes);
  }

  // The dead one's bytes stay in the row until somebody needs them.
  void Restart(Process* process) {
    Die(process->member);
    dead_bytes_ += process->Held();
    // The newcomer may get the dead one's slot and clears it then.
    Start(process);
    process->member->account.Reclaim(Effort::kThorough);
    dead_bytes_ = 0;
  }

  uint64_t Living() const {
    uint64_t bytes = 0;
    for (const Process& process : processes_) bytes += process.Held();
    return bytes;
  }

  uint64_t LimitBytes() const {
    uint64_t lowest = kNoLimit;
    for (const Process& process : processes_) lowest = std::min(lowest, process.limit_bytes);
    return lowest;
  }

  bool Fits(uint64_t bytes) const {
    const uint64_t limit = LimitBytes();
    return bytes <= limit && Living() <= limit - bytes;
  }

  void Note(bool granted, bool fits) {
    CHECK_EQ(granted, fits);
    ++(granted ? granted_ : refused_);
  }

  void ReservePlain(Process* process) {
    const uint64_t bytes = random_.Below(16) * kMiB;
    const bool fits = Fits(bytes);
    const bool granted = process->member->account.Reserve(bytes);
    Note(granted, fits);
    if (!granted) return;
    process->plain.push_back(bytes);
    process->plain_bytes += bytes;
  }

  void ReleasePlain(Process* process) {
    if (process->plain.empty()) return;
    const uint64_t bytes = TakeAny(&process->plain);
    process->member->account.Release(bytes);
    process->plain_bytes -= bytes;
  }

  uint64_t AnySize() {
    if (random_.Below(4) == 0) return 1 * kMiB + random_.Below(12 * kMiB);
    return 1 + random_.Below(random_.Below(2) == 0 ? kMiB : 64 * 1024);
  }

  void ReserveLinear(Process* process) {
    const uint64_t bytes = AnySize();
    const bool fits = Fits(Whole(bytes));
    const bool granted = process->member->account.Reserve(Whole(bytes));
    Note(granted, fits);
    if (!granted) return;
    process->linear.push_back({0, bytes});
    process->plain_bytes += Whole(bytes);
  }

  void ReleaseLinear(Process* process) {
    if (process->linear.empty()) return;
    const Piece piece = TakeAny(&process->linear);
    process->member->account.Release(Whole(piece.bytes));
    process->plain_bytes -= Whole(piece.bytes);
  }

  static void SetOverhead(Process* process, uint64_t bytes) {
    Account& account = process->member->account;
    CHECK(account.SetOverhead(bytes, account.overhead_moment()));
    process->overhead_bytes = bytes;
  }

  // Was seen by somebody before it ended, and is told after that: the others' overhead is all there
  // is.
  void EndContext(Account* account, uint64_t other_bytes) {
    const uint64_t context_bytes = random_.Below(4) * kMiB;
    account->OwnOverhead(0, context_bytes);
    const Account::OverheadMoment before = account->overhead_moment();
    account->ReleaseOverhead(context_bytes);
    CHECK(!account->RaiseOverhead(other_bytes + context_bytes, before));
  }

  void ChangeOverhead(Process* process) {
    const uint64_t bytes = random_.Below(8) * kMiB + random_.Below(3);
    Account& account = process->member->account;
    const Account::OverheadMoment before = account.overhead_moment();
    SetOverhead(process, bytes);
    CHECK(!account.SetOverhead(0, before));  // seen before the change, so it says less
    CHECK(account.RaiseOverhead(random_.Below(bytes + 1), account.overhead_moment()));
    EndContext(&account, bytes);
    CHECK_EQ(account.charged_bytes(), process->Held() - bytes);
  }

  void Compare() {
    const Process& process = processes_[random_.Below(kProcesses)];
    CHECK_EQ(HeldBy(*process.member, process.member->slot), process.Held());
    CHECK_EQ(process.member->account.UsedBytes(), Living() + dead_bytes_);
    CHECK_EQ(process.member->account.LimitBytes(), LimitBytes());
  }

  // The table of holdings against the standard library's.
  void TouchHoldings() {
    static std::unordered_map<uint64_t, Holding> expected;
    static auto* holdings = static_cast<Holdings*>(MapWipedOnFork(sizeof(Holdings)));
    const uint64_t key = random_.Below(4096) * 512;
    const auto family = static_cast<Family>(random_.Next() >> 63);  // not told by the key
    const Holding holding = {.key = key,
                             .bytes = random_.Next(),
                             .count = 1,
                             .kind = HoldingKind::kAddress,
                             .family = family};
    Holding found = {};
    const auto known = expected.find(key);
    const bool is_known = known != expected.end();
    switch (random_.Below(5)) {
      case 0: {
        Holding replaced;
        CHECK(holdings->Put(holding, &replaced));
        CHECK_EQ(replaced.kind != HoldingKind::kNone, is_known);
        if (is_known) CHECK_EQ(replaced.bytes, known->second.bytes);
        expected[key] = holding;
        return;
      }
      case 1:  // may leave what is new to Put, where the table must grow
        if (holdings->PutNew(holding)) {
          CHECK(!is_known);
          expected[key] = holding;
        } else if (!is_known) {
          CHECK(holdings->Put(holding));
          expected[key] = holding;
        }
        return;
      case 2:
        CHECK_EQ(holdings->Take(HoldingKind::kAddress, key, &found), is_known);
        break;
      case 3: {
        const bool is_taken = is_known && known->second.family == family;
        CHECK_EQ(holdings->TakeAddressOf(family, key, &found), is_taken);
        if (!is_taken) return;
        break;
      }
      default:
        CHECK_EQ(holdings->Get(HoldingKind::kAddress, key, &found), is_known);
        if (is_known) CHECK_EQ(found.bytes, known->second.bytes);
        CHECK(!holdings->Get(HoldingKind::kArray, key, &found));
        return;
    }
    if (!is_known) return;
    CHECK_EQ(found.bytes, known->second.bytes);
    expected.erase(known);
  }

  template <typename Item>
  Item TakeAny(std::vector<Item>* items) {
    std::swap((*items)[random_.Below(items->size())], items->back());
    const Item item = items->back();
    items->pop_back();
    return item;
  }

  const char* folder_;
  Random random_;
  std::vector<Process> processes_;
  uint64_t dead_bytes_ = 0;
  uint64_t granted_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const uint64_t operations = strtoull(argv[2], nullptr, 10);
  World world(argv[1], strtoull(argv[3], nullptr, 10));
  for (uint64_t i = 0; i < operations; ++i) world.Step();
  world.Finish();
  printf("{\"granted\": %llu, \"refused\": %llu}\n",
         static_cast<unsigned long long>(world.granted()),
         static_cast<unsigned long long>(world.refused()));
  return 0;
}
