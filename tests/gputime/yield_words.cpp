// The words of yield points, with the test in the place of the GPU. Fails with the place that was
// not true.
//
//   yield_words NAME
// sources: device/yield_points.cpp
// link: state
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

constexpr Case kCases[] = {
    {"unmapped", Unmapped}, {"closed", Closed}, {"stands", Stands}, {"given_anew", GivenAnew}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
