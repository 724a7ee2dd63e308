// What of an HTTP answer has come: status, headers, and a body by length, in chunks or to the end.
#include <string.h>

#include "config/http.h"
#include "config/text.h"

namespace gpufence {
namespace {

constexpr size_t kNoLength = SIZE_MAX;
constexpr size_t kMostLength = size_t{1} << 30;

struct Headers {
  bool refused;  // any status but 200
  bool chunked;
  size_t length;  // kNoLength: not told
};

// A line without its end; false: it has not come whole.
bool TakeLine(std::string_view* rest, std::string_view* line) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return false;
  *line = First(*rest, end);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  rest->remove_prefix(end + 1);
  return true;
}

bool ReadLength(std::string_view text, size_t* length) {
  size_t number = 0;
  for (const char digit : text) {
    if (!IsDigit(digit) || number > kMostLength) return false;
    number = number * 10 + static_cast<size_t>(digit - '0');
  }
  *length = number;
  return !text.empty();
}

bool ReadChunkSize(std::string_view line, size_t* size) {
  const std::string_view digits = Trim(First(line, line.find(';')), " \t");
  *size = 0;
  for (const char digit : digits) {
    const char lower = Lower(digit);
    const bool letter = lower >= 'a' && lower <= 'f';
    if ((!IsDigit(digit) && !letter) || *size > kMostLength) return false;
    *size = *size * 16 + static_cast<size_t>(letter ? lower - 'a' + 10 : digit - '0');
  }
  return !digits.empty();
}

// "HTTP/1.1 200 OK"
bool ReadStatus(std::string_view line, Headers* headers) {
  if (!StartsWith(line, "HTTP/1.")) return false;
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return false;
  const std::string_view code = First(After(line, blank + 1), 3);
  if (code.size() != 3 || !IsDigit(code[0]) || !IsDigit(code[1]) || !IsDigit(code[2])) return false;
  headers->refused = code != "200";
  return true;
}

bool ReadHeader(std::string_view line, Headers* headers) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = First(line, colon);
  const std::string_view value = Trim(After(line, colon + 1), " \t");
  if (EqualsIgnoringCase(name, "content-length")) {
    return headers->length == kNoLength && ReadLength(value, &headers->length);
  }
  if (EqualsIgnoringCase(name, "transfer-encoding")) {
    if (headers->chunked || !EqualsIgnoringCase(value, "chunked")) return false;
    headers->chunked = true;
  }
  return true;
}

// True once the headers have come whole; *broken tells whether they are none.
bool ReadHeaders(std::string_view* rest, Headers* headers, bool* broken) {
  std::string_view line;
  *broken = false;
  if (!TakeLine(rest, &line)) return false;
  *broken = !ReadStatus(line, headers);
  while (!*broken && TakeLine(rest, &line)) {
    if (line.empty()) {
      *broken = headers->chunked && headers->length != kNoLength;
      return true;
    }
    *broken = !ReadHeader(line, headers);
  }
  return *broken;
}

// The body is moved together only once it has come whole, since it is read again till then.
HttpProgress ReadChunks(std::string_view rest, char* to, bool ended, std::string_view* body) {
  const HttpProgress unfinished = ended ? HttpProgress::kBroken : HttpProgress::kMore;
  for (const bool moves : {false, true}) {
    std::string_view left = rest;
    std::string_view line;
    size_t used = 0;
    for (;;) {
      size_t size = 0;
      if (!TakeLine(&left, &line)) return unfinished;
      if (!ReadChunkSize(line, &size)) return HttpProgress::kBroken;
      if (size == 0) break;
      if (left.size() < size) return unfinished;
      if (moves) memmove(to + used, left.data(), size);
      used += size;
      left.remove_prefix(size);
      if (!TakeLine(&left, &line)) return unfinished;
      if (!line.empty()) return HttpProgress::kBroken;
    }
    do {
      if (!TakeLine(&left, &line)) return unfinished;
    } while (!line.empty());
    *body = {to, used};
  }
  return HttpProgress::kWhole;
}

}  // namespace

HttpProgress ReadHttpAnswer(char* bytes, size_t count, bool ended, std::string_view* body) {
  std::string_view rest{bytes, count};
  Headers headers{false, false, kNoLength};
  bool broken = false;
  if (!ReadHeaders(&rest, &headers, &broken)) {
    return ended ? HttpProgress::kBroken : HttpProgress::kMore;
  }
  if (broken) return HttpProgress::kBroken;
  if (headers.refused) return HttpProgress::kRefused;
  if (headers.chunked) {
    return ReadChunks(rest, bytes + (count - rest.size()), ended, body);
  }
  if (headers.length == kNoLength) {
    *body = rest;
    return ended ? HttpProgress::kWhole : HttpProgress::kMore;
  }
  *body = First(rest, headers.length);
  if (rest.size() >= headers.length) return HttpProgress::kWhole;
  return ended ? HttpProgress::kBroken : HttpProgress::kMore;
}

}  // namespace gpufence
