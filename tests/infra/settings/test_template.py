import pytest

from infra.settings.types import check_template


@pytest.mark.parametrize("template", ["{prompt}\n{choices}", "{{{choices}}} of {prompt}, {prompt}"])
def test_a_template_that_can_be_filled_is_accepted(template):
    assert check_template(template) == template


@pytest.mark.parametrize(
    "placeholder", ["{prompt!z}", "{prompt!r}", "{prompt:d}", "{prompt:>1000000000}", "{prompt:{choices}}"]
)
def test_a_placeholder_with_a_conversion_or_format_is_refused(placeholder):
    with pytest.raises(ValueError, match="placeholders cannot have ! or :"):
        check_template(placeholder + " {prompt} {choices}")


@pytest.mark.parametrize("placeholder", ["{prompt.x}", "{prompt[0]}", "{0}", "{}"])
def test_a_placeholder_other_than_prompt_and_choices_is_refused(placeholder):
    with pytest.raises(ValueError, match="no other placeholder"):
        check_template(placeholder + " {prompt} {choices}")


def test_a_template_may_repeat_the_prompt():
    assert check_template("{prompt}" * 15 + "{choices}")


def test_a_template_that_would_make_any_prompt_huge_is_refused():
    with pytest.raises(ValueError, match="it has 17 placeholders; 16 are allowed"):
        check_template("{prompt}" * 16 + "{choices}")
