// The words of yield points and hold points, with the test in the place of the GPU. Fails with the
// place that was not true.
//
//   yield_words NAME
// sources: device/yield_points.cpp
// link: state
#include <pthread.h>

#include "device/yield_points.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint32_t kContext = 3;
constexpr uint32_t kOrdinal = 1;
constexpr uint32_t kStream = 7;

YieldPoints yields;

using Word = std::atomic<uint32_t>;

Word* Given() {
  CHECK(yields.Map());
  return static_cast<Word*>(yields.GiveWords(kContext, kOrdinal));
}

Word& StreamOf(Word* words) { return words[YieldPoints::BytesTo(kStream) / sizeof(Word)]; }

bool LetsGoOn(const Word* words) {
  return static_cast<int32_t>(words->load()) >= static_cast<int32_t>(YieldPoints::kGoesOn);
}

// Before there is memory nothing is given, and nobody is at a point.
void Unmapped() {
  CHECK(yields.GiveWords(kContext, kOrdinal) == nullptr);
  CHECK(!yields.IsAtPoint(kContext, kStream));
}

// The words of a device's contexts tell what holds there, and of no other one's.
void Closed() {
  Word* words = Given();
  CHECK(LetsGoOn(words));
  yields.Close(kOrdinal + 1);
  CHECK(LetsGoOn(words));
  yields.Close(kOrdinal);
  yields.Close(kOrdinal);
  CHECK(!LetsGoOn(words) && yields.IsClosed(kOrdinal));
  yields.Open(kOrdinal);
  CHECK(LetsGoOn(words) && !yields.IsClosed(kOrdinal));
}

// A stream is at a point until the GPU writes that it went, whatever was opened and closed.
void Stands() {
  Word* words = Given();
  yields.Close(kOrdinal);
  CHECK(!yields.IsAtPoint(kContext, kStream));
  StreamOf(words).store(YieldPoints::kCame);
  CHECK(yields.IsAtPoint(kContext, kStream));
  CHECK(!yields.IsAtPoint(kContext, kStream + 1));
  yields.Open(kOrdinal);
  CHECK(yields.IsAtPoint(kContext, kStream));
  yields.Close(kOrdinal);
  CHECK(yields.IsAtPoint(kContext, kStream));
  StreamOf(words).store(YieldPoints::kWent);
  CHECK(!yields.IsAtPoint(kContext, kStream));
}

// A context that ended where it stood leaves nothing to the one that has its words next.
void GivenAnew() {
  StreamOf(Given()).store(YieldPoints::kCame);
  CHECK(yields.IsAtPoint(kContext, kStream));
  Given();
  CHECK(!yields.IsAtPoint(kContext, kStream));
}

// ---- hold points ----

uint32_t HoldWord(const Word* words) { return words[YieldPoints::kBytesToHold / sizeof(Word)]; }

bool GoesOnAt(const Word* words, uint32_t number) {
  return static_cast<int32_t>(HoldWord(words) - number) >= 0;
}

// One is closed at a time, of that device alone, whatever yield points do.
void Holds() {
  const Word* words = Given();
  CHECK(!yields.IsHoldClosed(kOrdinal));
  const uint32_t first = yields.CloseHold(kOrdinal);
  CHECK(yields.IsHoldClosed(kOrdinal, first) && !GoesOnAt(words, first));
  CHECK_EQ(yields.CloseHold(kOrdinal), first);
  CHECK(!yields.IsHoldClosed(kOrdinal + 1));
  yields.OpenHold(kOrdinal + 1);
  yields.Close(kOrdinal);
  yields.Open(kOrdinal);
  CHECK(!GoesOnAt(words, first));
  yields.OpenHold(kOrdinal);
  yields.OpenHold(kOrdinal);
  CHECK(!yields.IsHoldClosed(kOrdinal) && GoesOnAt(words, first));
  const uint32_t second = yields.CloseHold(kOrdinal);
  CHECK(second != first && yields.IsHoldClosed(kOrdinal, second));
  CHECK(!yields.IsHoldClosed(kOrdinal, first));
  CHECK(GoesOnAt(words, first) && !GoesOnAt(words, second));
}

// A context that comes later stands at what is closed, and at nothing that was.
void HoldsOfLaterContexts() {
  Given();
  const uint32_t first = yields.CloseHold(kOrdinal);
  yields.OpenHold(kOrdinal);
  const uint32_t second = yields.CloseHold(kOrdinal);
  const auto* words = static_cast<const Word*>(yields.GiveWords(kContext + 1, kOrdinal));
  CHECK(GoesOnAt(words, first) && !GoesOnAt(words, second));
  yields.OpenHold(kOrdinal);
  CHECK(GoesOnAt(words, second));
}

// Opened for good, what somebody is about to put into a stream is open as well.
void HoldsForGood() {
  const Word* words = Given();
  uint32_t number = yields.CloseHold(kOrdinal);
  yields.OpenHoldsForGood(kOrdinal);
  CHECK(!yields.IsHoldClosed(kOrdinal) && GoesOnAt(words, number + 1'000'000));
  const auto* later = static_cast<const Word*>(yields.GiveWords(kContext + 1, kOrdinal));
  CHECK(GoesOnAt(later, number + 1'000'000));
}

// Numbers wrap around.
void HoldsForLong() {
  const Word* words = Given();
  for (int i = 0; i < 5; ++i) {  // a quarter of all numbers each
    const uint32_t number = yields.CloseHold(kOrdinal);
    CHECK(yields.IsHoldClosed(kOrdinal, number) && !GoesOnAt(words, number));
    yields.OpenHoldsForGood(kOrdinal);
    CHECK(!yields.IsHoldClosed(kOrdinal) && GoesOnAt(words, number));
  }
}

void* CloseAndOpen(void*) {
  for (int i = 0; i < 100'000; ++i) {
    yields.CloseHold(kOrdinal);
    yields.OpenHold(kOrdinal);
  }
  return nullptr;
}

// Whoever is slow closes nothing again that another one opened: whoever stood there would for ever.
void HoldsOfManyThreads() {
  const Word* words = Given();
  pthread_t threads[4];
  for (pthread_t& thread : threads)
    CHECK(pthread_create(&thread, nullptr, CloseAndOpen, nullptr) == 0);
  for (pthread_t thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  CHECK(!yields.IsHoldClosed(kOrdinal));
  CHECK_EQ(HoldWord(words) + 1, yields.CloseHold(kOrdinal));
}

constexpr Case kCases[] = {{"unmapped", Unmapped},
                           {"closed", Closed},
                           {"stands", Stands},
                           {"given_anew", GivenAnew},
                           {"holds", Holds},
                           {"holds_of_later_contexts", HoldsOfLaterContexts},
                           {"holds_for_good", HoldsForGood},
                           {"holds_for_long", HoldsForLong},
                           {"holds_of_many_threads", HoldsOfManyThreads}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
