// What the golden vectors don't show: limits on hostile templates, values from JSON, rendering from several threads.
#include "chat/jinja/jinja.h"

#include <gtest/gtest.h>

#include <clocale>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/reference.h"

namespace sluice::jinja {
namespace {

std::string render(const std::string& source, const std::string& context = "{}") {
  return Template::parse(source).render(from_json(context));
}

// The error of a template that must not render.
TemplateError failure(const std::string& source, const std::string& context = "{}") {
  try {
    const std::string text = render(source, context);
    ADD_FAILURE() << source.substr(0, 200) << " renders as " << text.substr(0, 200);
  } catch (const TemplateError& error) {
    return error;
  }
  return TemplateError(FailureKind::kRuntime, "none");
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaErrors, NameTheLineAndTheReason) {
  const TemplateError error = failure("a\n{{ nope.x }}");
  EXPECT_EQ(error.failure(), FailureKind::kUndefined);
  EXPECT_EQ(error.line(), 2);
  EXPECT_EQ(error.detail(), "'nope' is undefined");
  EXPECT_STREQ(error.what(), "chat template, line 2: undefined value: 'nope' is undefined");
}

TEST(JinjaErrors, InvalidUtf8IsASyntaxError) { EXPECT_EQ(failure("a\xFF").failure(), FailureKind::kSyntax); }

TEST(JinjaErrors, WhatIsLeftOutSaysSo) {
  for (const char* source :
       {"{% block x %}{% endblock %}", "{{ 2 ** 100 }}", "{{ 9223372036854775807 + 1 }}", "{{ self }}",
        "{{ 'a'.encode() }}", "{{ 'a' | urlize }}", "{{ cycler(1) }}", "{{ range }}",
        "{% autoescape true %}{% endautoescape %}", "{{ '\\ud800' }}", "{{ 99999999999999999999 }}"}) {
    EXPECT_EQ(failure(source).failure(), FailureKind::kUnsupported) << source;
  }
}

TEST(JinjaLimits, NestedSyntaxEndsWithAnErrorAndNotWithTheStack) {
  constexpr int kMany = 60000;
  for (const std::string& source :
       {"{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}", "{{ " + repeat("[", kMany),
        "{{ " + repeat("{1:", kMany), "{{ " + repeat("not ", kMany) + "1 }}", "{{ " + repeat("-", kMany) + "1 }}",
        "{{ 1" + repeat(" + 1", kMany) + " }}", "{{ 'a'" + repeat(" | upper", kMany) + " }}",
        "{{ a" + repeat(".b", kMany) + " }}", "{{ a" + repeat("[0]", kMany) + " }}",
        "{{ a" + repeat("()", kMany) + " }}", "{{ " + repeat("1 if 0 else ", kMany) + "2 }}",
        "{{ 1" + repeat(" and 1", kMany) + " }}", "{{ " + repeat("f(", kMany), repeat("{% if 1 %}", kMany),
        repeat("{% for a in b %}", kMany), "{% set " + repeat("(", kMany) + "a" + repeat(")", kMany) + " = 1 %}"}) {
    EXPECT_EQ(failure(source).failure(), FailureKind::kLimit) << source.substr(0, 40);
  }
}

TEST(JinjaLimits, LongButFlatTemplatesAreFine) {
  EXPECT_EQ(render("{{ 'a'" + repeat(" ~ 'a'", 10000) + " }}").size(), 10001u);
  EXPECT_EQ(render(repeat("{% if 0 %}{% endif %}", 10000)), "");
  EXPECT_EQ(render("{% if 0 %}" + repeat("{% elif 0 %}", 10000) + "{% else %}x{% endif %}"), "x");
}

TEST(JinjaLimits, EndlessRecursionIsAnError) {
  for (const char* source :
       {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% macro f() %}{% for i in [1] %}{% if true %}{{ [f()] | map('upper') | list }}{% endif %}{% endfor %}"
        "{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}"}) {
    EXPECT_EQ(failure(source).failure(), FailureKind::kRecursion) << source;
  }
  EXPECT_EQ(failure("{{ 'a' | map(" + repeat("'map', ", 2000) + "'upper') | list }}").failure(),
            FailureKind::kRecursion);
}

TEST(JinjaLimits, ValuesCannotNestWithoutEnd) {
  for (const char* source :
       {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor "
        "%}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x].count %}{% endfor %}"}) {
    EXPECT_EQ(failure(source).failure(), FailureKind::kRecursion) << source;
  }
}

TEST(JinjaLimits, NamespacesThatHoldThemselvesAreFreed) {  // a leak checker sees it if not
  EXPECT_EQ(render("{% set a = namespace() %}{% set a.self = a %}{% set a.list = [a] %}ok"), "ok");
  EXPECT_EQ(render("{% set a = namespace() %}{% for i in range(9999) %}{% set b = namespace(up=a.x) %}{% set a.x = b %}"
                   "{% endfor %}ok"),
            "ok");
  EXPECT_EQ(render("{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"), "TrueFalse");
  EXPECT_EQ(render("{% macro m() %}{% endmacro %}{% set ns = namespace(m=m) %}{% set m2 = m %}ok"), "ok");
}

TEST(JinjaLimits, MacrosOutliveTheScopeThatMadeThem) {
  EXPECT_EQ(render("{% set ns = namespace(f=0) %}{% for i in [1, 2] %}{% macro m() %}<{{ i }}>{% endmacro %}"
                   "{% if i == 1 %}{% set ns.f = m %}{% endif %}{% endfor %}{{ ns.f() }}"),
            "<1>");
}

TEST(JinjaLimits, GrowthWithoutEndIsAnError) {
  for (const char* source :
       {"{% set ns = namespace(s='ab') %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | "
        "tojson }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
        "{% set a = ns.s %}{% set ns.s = [1] %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ a "
        "== ns.s }}",
        "{% set ns = namespace(s=(1,)) %}{% for i in range(99) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} "
        "}}",
        "{{ 'x' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 'a' | center(10000000000) }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a' | indent(10000000000, true) }}",
        "{{ [[1]] | tojson(indent=1000000000) }}",
        "{{ [1] | batch(10000000000, 0) | list }}",
        "{{ [1] | slice(10000000000) | list }}",
        "{{ ('a' * 10000000).replace('', 'b' * 10000000) }}",
        "{{ ('b' * 10000000).join('a' * 1000) }}",
        "{{ ('a' * 10000000).find('a' * 5000000 + 'b') }}",
        "{{ ('a' * 10000000) in ('a' * 20000000 + 'b') }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{% set y = s | length %}{{ s[-1] }}{% endfor %}",
        "{% set l = range(99999) | list %}{% for i in l %}{% set y = -1 in l %}{% endfor %}"}) {
    EXPECT_EQ(failure(source).failure(), FailureKind::kLimit) << source;
  }
}

TEST(JinjaLimits, AreTheCallersToSet) {
  Environment environment;
  environment.limits.max_output_bytes = 10;
  const Template ten = Template::parse("{{ 'x' * 10 }}"), eleven = Template::parse("{{ 'x' * 5 }}y{{ 'x' * 5 }}");
  EXPECT_EQ(ten.render(from_json("{}"), environment).size(), 10u);
  EXPECT_THROW(eleven.render(from_json("{}"), environment), TemplateError);
}

TEST(JinjaDict, FindsEveryKeyOfALargeOne) {
  Dict dict;
  for (int64_t i = 0; i < 5000; ++i) {
    dict.set(Value(fmt::format("k{}", i)), Value(i));
    dict.set(Value(i * 4096), Value(-i));
  }
  ASSERT_EQ(dict.size(), 10000u);
  for (int64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(dict.find(std::string_view(fmt::format("k{}", i)))->as_int(), i);
    ASSERT_EQ(dict.find(Value(i * 4096))->as_int(), -i);
    ASSERT_EQ(dict.find(Value(static_cast<double>(i * 4096)))->as_int(), -i);
  }
  EXPECT_EQ(dict.find(std::string_view("k5000")), nullptr);
}

TEST(JinjaJson, KeepsOrderNumbersAndText) {
  const std::string text = R"({"b": 1, "a": [1.0, 1e+16, -0.0, null, true, "é\n\"\u0001"], "": {}})";
  EXPECT_EQ(to_json(from_json(text)), text);
  EXPECT_EQ(to_json(from_json(R"({"a": 1, "b": 2, "a": 3})")), R"({"a": 3, "b": 2})");
}

TEST(JinjaJson, BadTextIsAnErrorWithItsPlace) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xFF\"", "[99999999999999999999]", "\"\\ud800\""}) {
    EXPECT_THROW(from_json(text), Error) << text;
  }
  EXPECT_THROW(from_json(std::string_view("1\0 2", 4)), Error);
  EXPECT_THROW(from_json(repeat("[", 100000)), Error);
  EXPECT_NO_THROW(from_json(repeat("[", 200) + repeat("]", 200)));
  try {
    from_json("[1, x]");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("byte 5"), std::string::npos) << error.what();
  }
}

TEST(Jinja, NumbersDoNotFollowTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    EXPECT_EQ(render("{{ 1234.5 }} {{ '%.2f' % 1234.5 }} {{ '2.5' | float }} {{ x }}", R"({"x": 0.25})"),
              "1234.5 1234.50 2.5 0.25");
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Jinja, OneTemplateRendersInManyThreads) {
  const std::string source = read_text_file(test::test_data_dir() + "/templates/real/Qwen-Qwen3.6-35B-A3B.jinja");
  const Template shared = Template::parse(source);
  const Value context = from_json(
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}], "add_generation_prompt": true})");
  const std::string expected = shared.render(context);
  EXPECT_NE(expected.find("<|im_start|>user\nHi<|im_end|>"), std::string::npos);
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = shared.render(context);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace sluice::jinja
