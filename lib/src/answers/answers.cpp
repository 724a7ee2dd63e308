// libgpufence-limits.so: the library's own readers, for the tools. One function; a question is a
// row of texts, each ended by a NUL:
//
//   grammar NAME TEXT              TEXT is all that follows, NULs included, without one at its end
//   claims ROOT DEVICES NAME=TEXT…
//   sources ROOT NAME=TEXT…
#include "answers/answers.h"

#include <stdlib.h>
#include <string.h>

#include "config/grammar.h"
#include "config/text.h"

namespace gpufence {
namespace {

template <typename Amount, Fault (*kParse)(std::string_view, Amount*)>
Fault Number(std::string_view text, JsonText* json) {
  Amount amount{};
  const Fault fault = kParse(text, &amount);
  if (fault == Fault::kNone) json->Number(static_cast<uint64_t>(amount));
  return fault;
}

Fault ReadSize(std::string_view text, JsonText* json) {
  Size size{};
  const Fault fault = ParseSize(text, &size);
  if (fault != Fault::kNone) return fault;
  json->Raw("[");
  json->Number(size.amount);
  json->Raw(size.percent_of_device ? ",true]" : ",false]");
  return fault;
}

Fault ReadSwitch(std::string_view text, JsonText* json) {
  bool on = false;
  const Fault fault = ParseSwitch(text, &on);
  if (fault == Fault::kNone) json->Bool(on);
  return fault;
}

struct Grammar {
  std::string_view name;
  Fault (*read)(std::string_view text, JsonText* json);
};

constexpr Grammar kGrammars[] = {
    {"size", ReadSize},
    {"percent", Number<uint64_t, ParsePercent>},
    {"ratio", Number<uint64_t, ParseRatio>},
    {"oversubscribe", Number<uint64_t, ParseOversubscribe>},
    {"megabytes", Number<uint64_t, ParseMegabytes>},
    {"switch", ReadSwitch},
    {"priority", Number<CorePriority, ParsePriority>},
    {"weight", Number<uint32_t, ParseWeight>},
    {"burst", Number<uint64_t, ParseBurst>},
    {"floor", Number<uint32_t, ParseFloor>},
};

// A text by one of the grammars: {"value": …}, or {"clause": …, "fix": …}.
void AnswerGrammar(std::string_view name, std::string_view text, JsonText* json) {
  for (const Grammar& grammar : kGrammars) {
    if (grammar.name != name) continue;
    char value[64];
    JsonText written(value, sizeof value);
    const Fault fault = grammar.read(text, &written);
    json->Raw("{");
    if (fault == Fault::kNone) {
      json->Key("value");
      json->Raw({value, written.size()});
    } else {
      json->Key("clause");
      json->Text(WordingOf(fault).clause);
      json->Key("fix");
      json->Text(WordingOf(fault).fix);
    }
    json->Raw("}");
  }
}

// The next text, which its NUL ends; empty behind the last one.
std::string_view Next(std::string_view* rest) {
  std::string_view text = "";
  NextPart(rest, '\0', &text);
  return text;
}

template <typename Answer>
void WithSources(const char* root, std::string_view rest, Answer answer) {
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
    WithSources(first.data(), question,
                [&](const Sources& sources) { AnswerClaims(sources, devices, json); });
  }
  if (name == "sources") {
    WithSources(first.data(), question,
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
