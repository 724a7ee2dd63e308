// libgpufence-limits.so: the library's own readers, for the tools. One function; a question is a
// row of texts, each ended by a NUL:
//
//   grammar NAME TEXT              TEXT is all that follows, NULs included, without one at its end
//   claims ROOT DEVICES NAME=TEXT…
//   sources ROOT NAME=TEXT…
#include <stdlib.h>
#include <string.h>

#include "answers/answers.h"
#include "config/text.h"

namespace gpufence {
namespace {

// The next text, which its NUL ends; empty behind the last one.
std::string_view Next(std::string_view* rest) {
  std::string_view text = "";
  NextPart(rest, '\0', &text);
  return text;
}

template <typename Answer>
void WithSources(const char* root, std::string_view rest, JsonText* json, Answer answer) {
  size_t count = 0;
  for (const char character : rest) count += character == '\0' ? 1 : 0;
  auto** environment = static_cast<char**>(calloc(count + 1, sizeof(char*)));
  if (environment == nullptr) return;
  for (size_t i = 0; i < count; ++i) environment[i] = const_cast<char*>(Next(&rest).data());
  answer(Sources{root, environment, /*asks=*/false});
  free(environment);
}

void Answer(std::string_view question, JsonText* json) {
  const std::string_view name = Next(&question);
  const std::string_view first = Next(&question);
  if (name == "grammar") AnswerGrammar(first, question, json);
  if (name == "claims") {
    const char* devices = Next(&question).data();
    WithSources(first.data(), question, json,
                [&](const Sources& sources) { AnswerClaims(sources, devices, json); });
  }
  if (name == "sources") {
    WithSources(first.data(), question, json,
                [&](const Sources& sources) { AnswerSources(sources, json); });
  }
}

}  // namespace
}  // namespace gpufence

// The answer as JSON, without a NUL. Returns how many bytes it has, also where they do not fit; 0
// where the question is none or no memory is left. One thread at a time.
extern "C" __attribute__((visibility("default"))) size_t gpufence_limits(const char* question,
                                                                         size_t question_bytes,
                                                                         char* answer,
                                                                         size_t answer_bytes);

size_t gpufence_limits(const char* question, size_t question_bytes, char* answer,
                       size_t answer_bytes) {
  gpufence::JsonText json(answer, answer_bytes);
  gpufence::Answer({question, question_bytes}, &json);
  return json.size();
}
