// See faults.h.
#include "machine/faults.h"

#include <stddef.h>
#include <string.h>

#include "machine/config.h"
#include "symbols.h"

namespace sim::faults {
namespace {

constexpr size_t kMaxFaults = 64;
constexpr size_t kMaxNumberDigits = 19;

constinit Fault g_plan[kMaxFaults] = {};
constinit size_t g_count = 0;

// A piece of the plan's text, not terminated.
struct Piece {
  const char* at;
  size_t bytes;
};

// Cuts `text` at the first `mark`: what is before it, with `text` moved behind it.
Piece CutAt(Piece* text, char mark) {
  const void* hit = memchr(text->at, mark, text->bytes);
  const size_t bytes =
      hit != nullptr ? static_cast<size_t>(static_cast<const char*>(hit) - text->at) : text->bytes;
  const Piece head = {text->at, bytes};
  const size_t skipped = hit != nullptr ? bytes + 1 : bytes;
  *text = {text->at + skipped, text->bytes - skipped};
  return head;
}

bool Equals(Piece piece, const char* text) {
  return strlen(text) == piece.bytes && memcmp(text, piece.at, piece.bytes) == 0;
}

bool ToNumber(Piece piece, int64_t low, int64_t high, uint64_t* value) {
  char digits[kMaxNumberDigits + 1];
  if (piece.bytes > kMaxNumberDigits) return false;
  memcpy(digits, piece.at, piece.bytes);
  digits[piece.bytes] = '\0';
  int64_t number = 0;
  if (!ParseInteger(digits, low, high, &number)) return false;
  *value = static_cast<uint64_t>(number);
  return true;
}

bool ToSymbol(Piece piece, uint16_t* sym) {
  for (uint16_t index = 0; index < gpufence::kSymCount; ++index) {
    if (Equals(piece, gpufence::kSymInfo[index].name)) {
      *sym = index;
      return true;
    }
  }
  return false;
}

bool ToAction(Piece piece, Fault* fault) {
  Piece rest = piece;
  const Piece word = CutAt(&rest, ':');
  const bool is_block = Equals(word, "block");
  if (is_block || Equals(word, "late")) {
    fault->action = is_block ? FaultAction::kBlock : FaultAction::kLate;
    return ToNumber(rest, 0, 86'400'000, &fault->value);
  }
  if (Equals(piece, "kill")) {
    fault->action = FaultAction::kKill;
    return true;
  }
  fault->action = FaultAction::kCode;
  return ToNumber(piece, 1, INT32_MAX, &fault->value);
}

// Reads which calls suffer: "N", "N/M" or "*".
bool ToCalls(Piece piece, Fault* fault) {
  fault->call = fault->every = 1;
  if (Equals(piece, "*")) return true;
  const bool is_once = memchr(piece.at, '/', piece.bytes) == nullptr;
  const Piece first = CutAt(&piece, '/');
  if (is_once) fault->every = 0;
  return ToNumber(first, 1, INT64_MAX, &fault->call) &&
         (is_once || ToNumber(piece, 1, INT64_MAX, &fault->every));
}

// Reads "NAME@N=ACTION"; null when it is one, else what is wrong with it.
const char* ParseEntry(Piece entry, Fault* fault) {
  const Piece name = CutAt(&entry, '@');
  const Piece call = CutAt(&entry, '=');
  if (!ToSymbol(name, &fault->sym)) return "a name before '@' is no function of the driver";
  if (!ToCalls(call, fault)) {
    return "between '@' and '=' belongs the number of a call, from 1, or N/M, or '*'";
  }
  return ToAction(entry, fault) ? nullptr
                                : "after '=' belongs a result code, block:MS, late:MS or kill";
}

}  // namespace

bool Parse(const char* text, const char** why) {
  Piece rest = {text, strlen(text)};
  while (rest.bytes > 0) {
    const Piece entry = CutAt(&rest, ';');
    if (entry.bytes == 0) continue;
    if (g_count == kMaxFaults) {
      *why = "there are more than 64 entries";
      return false;
    }
    *why = ParseEntry(entry, &g_plan[g_count]);
    if (*why != nullptr) return false;
    ++g_count;
  }
  return true;
}

const Fault* Planned(uint16_t sym, uint64_t count) {
  for (size_t index = 0; index < g_count; ++index) {
    const Fault& fault = g_plan[index];
    if (fault.sym != sym || count < fault.call) continue;
    const uint64_t behind = count - fault.call;
    if (behind == 0 || (fault.every != 0 && behind % fault.every == 0)) return &fault;
  }
  return nullptr;
}

}  // namespace sim::faults
