"""An application in one file: `runtime up --app examples/hello_app.py`, then run it."""

from loopline import App

app = App()
app.agent("greeter", instructions="Greet the user by name.", model="slm")

if __name__ == "__main__":
    print(app.sync.ask("My name is Ada."))
