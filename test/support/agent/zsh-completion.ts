/**
 * A script for zsh that prints the candidates of a line: it types the line and the Tab key into another zsh, whose
 * `compadd` prints what completion gives it.
 */
export const ZSH_CANDIDATES = `
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "source $1"
zpty -w inner "$2"$'\\t'
integer marks=0
while zpty -r inner line; do
    [[ $line == *MARK* ]] && (( ++marks == 2 )) && break
    [[ $line == *'<'*'>'* ]] && print -r -- "\${line//[^[:print:]]/}"
done
zpty -d inner
exit 0
`;

/** Sourced by the inner zsh. */
export const ZSH_SETTING = `
PROMPT=
autoload -Uz compinit
compinit -D -u
eval "$(edgectl completion zsh)"
bindkey '^I' complete-word
mark() { print MARK }
compprefuncs=(mark)
comppostfuncs=(mark exit)
zstyle ':completion:*' insert-tab false
compadd() {
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a found
    builtin compadd -A found "$@"
    local each
    for each in $found; do print -r -- "<$each>"; done
    builtin compadd "$@"
}
`;
